"""The stamp that every message carries, and its one line of text in gRPC metadata.

The text is ``source;incarnation;number;colour;floor``, all decimal but the source: short, printable, and the same in every
language. A tag may follow (:mod:`stilltrue.protocol.stamp_tag`), which only holders of a key can check. A stamp that
cannot be parsed is ignored: the message counts as one from outside (fail open).
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from stilltrue.model import CallNumber, ProcessName, SnapshotId

METADATA_KEY = "stilltrue-stamp"
NUMBER_MAX = 2**53
"""The highest number, which every language and JSON can hold exactly."""
INCARNATION_MAX = 2**63 - 1
"""Incarnations are random: as long as a signed 64-bit integer allows."""

NAME_LENGTH_MAX = 253
"""Characters in a process's name at the most (a Kubernetes object name's limit)."""
SENDERS_MAX = 1_024
"""Senders whose names are parsed once."""
_PARTS = 5


class Stamp(NamedTuple):
    """Who sent a message, its number, the sender's colour and floor (docs/design.md section 3, rules 1 and 3).

    ``number`` is the caller's number for the call, on the request and on the reply alike. ``floor`` is the lowest number that
    is still outstanding at the source: each call below it is over for its caller. A tuple, since each message makes one.
    """

    source: ProcessName
    incarnation: int
    number: CallNumber
    colour: SnapshotId
    floor: CallNumber


_new = tuple.__new__  # makes a stamp twice as fast as by its name: one is made for each message


def encode(stamp: Stamp) -> str:
    """The stamp as a metadata value."""
    return f"{stamp[0]};{stamp[1]};{stamp[2]};{stamp[3]};{stamp[4]}"


def decode(text: str | bytes) -> Stamp | None:
    """The stamp that ``text`` holds; None when it holds none."""
    try:
        if isinstance(text, bytes):
            text = text.decode("ascii")
        if text.count(";") == _PARTS:  # the last one is a tag
            text = text[: text.rindex(";")]
        sender, call, newest, lowest = text.rsplit(";", 3)
        number, colour, floor = int(call), int(newest), int(lowest)
        source, incarnation = _sender(sender)
    except ValueError:
        return None
    if not (0 <= number <= NUMBER_MAX and 0 <= colour <= NUMBER_MAX and 0 <= floor <= NUMBER_MAX):
        return None
    stamp: Stamp = _new(Stamp, (source, incarnation, number, colour, floor))
    return stamp


@lru_cache(maxsize=SENDERS_MAX)
def _sender(text: str) -> tuple[ProcessName, int]:
    """The process and incarnation in ``text``, the same in each of its stamps. Raises ValueError."""
    source, run = text.split(";")
    incarnation = int(run)
    if not (0 < len(source) <= NAME_LENGTH_MAX and 0 <= incarnation <= INCARNATION_MAX):
        raise ValueError(text)
    return ProcessName(source), incarnation
