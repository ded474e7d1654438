"""Stamps in gRPC metadata (rule 9): ours alone goes out, and one from one friend comes in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from stilltrue.protocol.stamp import METADATA_KEY, Stamp

if TYPE_CHECKING:
    from stilltrue.runtime.recorder import LockedRecorder

Metadata = Iterable[tuple[str, str | bytes]] | None
Pair = tuple[str, str]
_KEYS = (METADATA_KEY, METADATA_KEY.encode())  # gRPC takes keys as bytes, too


def read_stamp(live: LockedRecorder, metadata: Any, method: str | bytes, *, reply: bool) -> Stamp | None:
    """The stamp in gRPC metadata (pairs; None is empty) of a call of ``method``, or of its reply. None: there is none.

    Several count as none, and so does one without the fleet's tag: the sender is unknown.
    """
    found: Stamp | None = None
    seen = False
    if metadata:
        for entry in metadata:
            if entry[0] in _KEYS:
                if seen:
                    live.several_stamps()
                    return None
                seen = True
                found = live.stamp_of(entry[1], method, reply=reply)
    return found


def with_stamp(metadata: Any, pair: Pair) -> Any:
    """``metadata`` with this stamp and no other; anything else is returned unchanged, for gRPC to refuse."""
    if not metadata:
        return (pair,)
    if isinstance(metadata, Mapping):
        return metadata
    try:
        entries = tuple(metadata)
    except TypeError:
        return metadata
    try:
        return (*without_stamp(entries), pair)
    except (TypeError, LookupError):
        return entries


def without_stamp(metadata: Any) -> tuple[Any, ...]:
    """``metadata`` without any stamp."""
    return tuple([entry for entry in metadata if entry[0] not in _KEYS])


def hide_stamp(metadata: Any) -> Any:
    """Received ``metadata`` as it would be without an agent at the other end; of the same type."""
    if not metadata or not any(entry[0] in _KEYS for entry in metadata):
        return metadata
    left = without_stamp(metadata)
    return left if isinstance(metadata, tuple) else type(metadata)(*left)
