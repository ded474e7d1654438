"""Converts states and messages (JSON values and bytes) to JSON and back without loss. No pickle: files cannot execute code.

Bytes become ``{"$bytes": base64}``, floats that JSON lacks ``{"$float": "nan"}``, and a mapping with a key that begins with
``$`` becomes ``{"$map": [[key, value], ...]}``.
"""

from __future__ import annotations

import base64
import binascii
import math

from detector.checkpoints.protocol.points import Value


class ValueKindError(TypeError):
    """A state or message has a value that cannot be stored; the message names its place and type."""


def to_json(value: object, where: str = "value") -> Value:
    """Convert ``value`` to JSON values; ValueKindError if part of it cannot be stored."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else {"$float": str(value)}
        case bytes():
            return {"$bytes": base64.b64encode(value).decode("ascii")}
        case list():
            return [to_json(item, f"{where}[{at}]") for at, item in enumerate(value)]
        case dict():
            return _mapping(value, where)
        case _:
            raise ValueKindError(
                f"{where}: {type(value).__name__} cannot be stored; use None, bool, int, float, str, bytes, list, dict"
            )


def from_json(value: Value) -> Value:
    """Invert :func:`to_json`; ValueError if the input cannot be its output."""
    if isinstance(value, list):
        return [from_json(item) for item in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        ((key, inner),) = value.items()
        if key == "$bytes":
            return _bytes(inner)
        if key == "$float" and inner in ("nan", "inf", "-inf"):
            return float(str(inner))
        if key == "$map" and isinstance(inner, list):
            return {str(k): from_json(v) for k, v in (_pair(item) for item in inner)}
    if any(key.startswith("$") for key in value):
        raise ValueError(f"unknown tag {sorted(value)[0]!r}")
    return {key: from_json(item) for key, item in value.items()}


def _mapping(value: dict[object, object], where: str) -> Value:
    kept: dict[str, Value] = {}
    for key, item in value.items():
        if not isinstance(key, str):
            raise ValueKindError(f"{where}: the key {key!r} is not a string")
        kept[key] = to_json(item, f"{where}.{key}")
    if any(key.startswith("$") for key in kept):
        return {"$map": [[key, item] for key, item in kept.items()]}
    return kept


def _bytes(text: Value) -> bytes:
    try:
        return base64.b64decode(str(text), validate=True)
    except binascii.Error as error:
        raise ValueError(f"invalid base64: {error}") from error


def _pair(item: Value) -> tuple[Value, Value]:
    if not isinstance(item, list) or len(item) != 2:
        raise ValueError("a mapping's item is not a pair")
    return item[0], item[1]
