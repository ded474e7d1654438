"""The text of a story's records: the same in every run, without ports, times and traces."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Any

import grpc

VARYING = frozenset({"user-agent", "traceparent", "tracestate", "baggage", "sentry-trace"})
"""Metadata that a neighbour adds, or that names versions. The agent's own, the stamp, must not show."""
_CHANGES = (
    (re.compile(r"0x[0-9a-f]+"), "0x"),
    (re.compile(r"\d+\.\d+\.\d+\.\d+:\d+|localhost:\d+"), "ADDRESS"),
    (re.compile(r"\[::1\]:\d+|ipv[46]:\S+"), "ADDRESS"),
    (re.compile(r"\{?(created_time|debug_error_string|grpc_\w+|tsi_\w+|file\w*)\b.*", re.DOTALL), "DEBUG"),
    (re.compile(r"\b(Recorded\w+|IncomingRequests|grpc\._cython\.cygrpc\.\w+)"), "CLASS"),
)


def in_words(value: Any) -> Any:
    """``value`` as text, without the parts that vary."""
    if isinstance(value, grpc.Call | grpc.aio.Call):
        return "a call"
    if isinstance(value, float):
        return "a time"
    if isinstance(value, BaseException):
        return [type(value).__name__ if not isinstance(value, grpc.RpcError) else "RpcError", in_words(str(value.args[:1]))]
    if isinstance(value, dict):
        return {str(key): in_words(one) for key, one in sorted(value.items())}
    if _is_metadata(value):
        return sorted(f"{key}={one!r}" for key, one in value if key not in VARYING)
    if isinstance(value, list | tuple):
        return [in_words(one) for one in value]
    if value is None or isinstance(value, bool | int):
        return value
    text = repr(value)
    for pattern, words in _CHANGES:
        text = pattern.sub(words, text)
    return text[:300]


def _is_metadata(value: Any) -> bool:
    if type(value).__name__ == "Metadata":
        return True
    return isinstance(value, list | tuple) and bool(value) and all(isinstance(one, tuple) and len(one) == 2 for one in value)


def failed(error: BaseException) -> list[Any]:
    """An exception as text, with all that an application can read from it."""
    told: list[Any] = ["raised", isinstance(error, grpc.RpcError), isinstance(error, grpc.Call), isinstance(error, grpc.Future)]
    if not isinstance(error, grpc.RpcError):
        return [*told, type(error).__name__, in_words(str(error))]
    for name in ("code", "details", "initial_metadata", "trailing_metadata"):
        method = getattr(error, name, None)
        told.append(None if method is None else shown(method))
    return told


def shown(ask: Callable[[], Any]) -> Any:
    """The result or exception of ``ask``, as text."""
    try:
        return in_words(ask())
    except Exception as error:  # noqa: BLE001 - whatever it is, it is compared
        return failed(error)


async def shown_later(ask: Callable[[], Any]) -> Any:
    """The result or exception of awaiting ``ask``, as text."""
    try:
        result = ask()
        return in_words(await result if hasattr(result, "__await__") else result)
    except asyncio.CancelledError:
        return ["raised", "CancelledError"]
    except Exception as error:  # noqa: BLE001 - as above
        return failed(error)
