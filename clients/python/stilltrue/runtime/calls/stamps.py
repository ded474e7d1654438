"""Stamps in gRPC metadata (protocol rule 9). Outgoing metadata gets ours and loses any other; incoming one must have one."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from stilltrue.protocol.stamp import METADATA_KEY, Stamp, decode

if TYPE_CHECKING:
    from stilltrue.runtime.locked_recorder import LockedRecorder

Pair = tuple[str, str]
STAMP_KEYS = frozenset({METADATA_KEY, METADATA_KEY.encode()})  # gRPC also accepts keys as bytes
_LEGAL_KEY = re.compile(r"[0-9a-z_.-]+")


def read_stamp(live: LockedRecorder, metadata: Any, method: str | bytes, reply: bool = False) -> Stamp | None:
    """The stamp in gRPC metadata (pairs, or None) of a call of ``method``, or of its reply; None if there is none.

    Several stamps count as none, and so does one without the fleet's tag: the sender is unknown.
    """
    text: Any = None
    for entry in metadata or ():
        if entry[0] in STAMP_KEYS:
            if text is not None:
                live.several_stamps()
                return None
            text = entry[1]
    if text is None:
        return None
    return decode(text) if live.keys.tags is None else live.stamp_of(text, method, reply=reply)


def with_stamp(metadata: Any, pair: Pair | None) -> Any:
    """``metadata`` with this stamp (None: none) and no other. Malformed metadata is returned as is, for gRPC to refuse."""
    if not metadata:
        return metadata if pair is None else (pair,)
    if isinstance(metadata, Mapping):
        return metadata
    try:
        entries = tuple(metadata)
    except TypeError:
        return metadata
    try:
        if all(_is_legal(*entry) for entry in entries):
            left = without_stamp(entries)
            return left if pair is None else (*left, pair)
    except (TypeError, LookupError):
        pass
    return metadata if isinstance(metadata, Sequence) else entries


def _is_legal(key: str | bytes, value: str | bytes) -> bool:
    """Whether gRPC accepts the entry. It shows refused metadata to the application, which must not see a stamp."""
    if isinstance(key, bytes):
        key = key.decode("latin-1")
    if _LEGAL_KEY.fullmatch(key) is None:
        return False
    return not isinstance(value, str) or key.endswith("-bin") or (value.isascii() and value.isprintable())


def without_stamp(metadata: Any) -> tuple[Any, ...]:
    """``metadata`` without any stamp."""
    return tuple([entry for entry in metadata if entry[0] not in STAMP_KEYS])


def hide_stamp(metadata: Any) -> Any:
    """Received ``metadata`` without the stamp, as if the other end had no agent; of the same type."""
    if not metadata:
        return metadata
    left = without_stamp(metadata)
    if len(left) == len(metadata):
        return metadata
    return left if isinstance(metadata, tuple) else type(metadata)(*left)
