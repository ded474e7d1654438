"""Stamps in gRPC metadata (rule 9). Outgoing: any other is removed, ours is added. Incoming: exactly one counts."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from stilltrue.protocol.stamp import METADATA_KEY, Stamp, decode

if TYPE_CHECKING:
    from stilltrue.runtime.recorder import LockedRecorder

Pair = tuple[str, str]
STAMP_KEYS = frozenset({METADATA_KEY, METADATA_KEY.encode()})  # gRPC takes keys as bytes, too
_LEGAL_KEY = re.compile(r"[0-9a-z_.-]+")


def read_stamp(live: LockedRecorder, metadata: Any, method: str | bytes, reply: bool = False) -> Stamp | None:
    """The stamp in gRPC metadata (pairs; None is empty) of a call of ``method``, or of its reply. None: there is none.

    Several count as none, and so does one without the fleet's tag: the sender is unknown.
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
    """``metadata`` with this stamp (None: with none) and no other; anything else is returned as it is, for gRPC to refuse."""
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
    """Whether gRPC takes it. What it refuses is shown to the application, in which no stamp must be."""
    if isinstance(key, bytes):
        key = key.decode("latin-1")
    if _LEGAL_KEY.fullmatch(key) is None:
        return False
    return not isinstance(value, str) or key.endswith("-bin") or (value.isascii() and value.isprintable())


def without_stamp(metadata: Any) -> tuple[Any, ...]:
    """``metadata`` without any stamp."""
    return tuple([entry for entry in metadata if entry[0] not in STAMP_KEYS])


def hide_stamp(metadata: Any) -> Any:
    """Received ``metadata`` as it would be without an agent at the other end; of the same type."""
    if not metadata:
        return metadata
    left = without_stamp(metadata)
    if len(left) == len(metadata):
        return metadata
    return left if isinstance(metadata, tuple) else type(metadata)(*left)
