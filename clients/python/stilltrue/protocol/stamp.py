"""The stamp that every message carries, and its one line of text in gRPC metadata.

The text is ``source;incarnation;number;colour;floor``, all decimal except the source: short, printable, and the same in every
language. A request's stamp may end with ``;~mark~mark~``, the marks of processes that its sender knows to serve its channel:
they may omit redundant stamps from their replies (protocol rule 1). A tag may follow, which only holders of a key can check
(:mod:`~stilltrue.protocol.stamp_tag`). A stamp that cannot be parsed is ignored: the message counts as unstamped (fail open).
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from hashlib import blake2b
from typing import NamedTuple

from stilltrue.model import CallNumber, ProcessName, SnapshotId

METADATA_KEY = "stilltrue-stamp"
NUMBER_BITS = 53
NUMBER_MAX = 2**NUMBER_BITS
"""The largest number allowed: every language and JSON can hold it exactly."""
INCARNATION_MAX = 2**63 - 1
"""Incarnations are random numbers that fit in a signed 64-bit integer."""

NAME_LENGTH_MAX = 253
"""The maximum length of a process name, in characters (Kubernetes' limit for object names)."""
KNOWN_LENGTH_MAX = 200
"""The maximum length of :attr:`Stamp.known`, in characters."""
SENDERS_MAX = 1_024
"""The size of the cache of parsed senders."""
_PARTS = 5
_MARK_BYTES = 8


class Stamp(NamedTuple):
    """A message's sender and number, and the sender's colour and floor (docs/design.md section 3, protocol rules 1 and 3).

    ``number`` is the caller's number for the call, on the request and on the reply alike. ``floor`` is the lowest number still
    outstanding at the source: each call below it is over for its caller. ``known`` has the marks of the servers that the caller
    knows. A tuple, because one is created for each message.
    """

    source: ProcessName
    incarnation: int
    number: CallNumber
    colour: SnapshotId
    floor: CallNumber
    known: str = ""


_new = tuple.__new__  # twice as fast as calling Stamp(), and each message needs a stamp


def encode(stamp: Stamp) -> str:
    """Return the stamp as a metadata value."""
    source, incarnation, number, colour, floor, known = stamp
    if known:
        return f"{source};{incarnation};{number};{colour};{floor};{known}"
    return f"{source};{incarnation};{number};{colour};{floor}"


def sender_text(source: ProcessName, incarnation: int) -> str:
    """The beginning of all stamps of a process."""
    return f"{source};{incarnation}"


def mark_of(source: ProcessName, incarnation: int) -> str:
    """The mark of a process: a short hash with delimiters, to be found in :attr:`Stamp.known`."""
    return f"~{blake2b(sender_text(source, incarnation).encode(), digest_size=_MARK_BYTES).hexdigest()}~"


def marks_of(processes: Iterable[tuple[ProcessName, int]]) -> str:
    """The marks of several processes, in the form of :attr:`Stamp.known`."""
    return "".join(mark_of(*one)[:-1] for one in processes) + "~"


def decode(text: str | bytes) -> Stamp | None:
    """Parse a metadata value; None if it is not a valid stamp."""
    parts = _split(text) if isinstance(text, bytes) else text.split(";")
    try:
        name, run, call, newest, lowest, known = parts
    except ValueError:
        if len(parts) != _PARTS:
            return None
        name, run, call, newest, lowest = parts
        known = ""
    return _parsed(name, run, call, newest, lowest, known)


def _split(text: bytes) -> list[str]:
    try:
        return text.decode("ascii").split(";")
    except ValueError:
        return []


def _parsed(name: str, run: str, call: str, newest: str, lowest: str, known: str) -> Stamp | None:
    try:
        number, colour = int(call), int(newest)
        floor = number if lowest == call else int(lowest)
        source, incarnation = _sender(name, run)
    except ValueError:
        return None
    if known and (known[0] != "~" or len(known) > KNOWN_LENGTH_MAX):
        known = ""  # a tag that this process has no key to check
    if (number | colour | floor) >> NUMBER_BITS and not _are_numbers(number, colour, floor):
        return None
    stamp: Stamp = _new(Stamp, (source, incarnation, number, colour, floor, known))
    return stamp


def _are_numbers(*numbers: int) -> bool:
    return all(0 <= number <= NUMBER_MAX for number in numbers)


@lru_cache(maxsize=SENDERS_MAX)
def _sender(source: str, run: str) -> tuple[ProcessName, int]:
    """Parse a sender, the same in each of its stamps. Raises ValueError."""
    incarnation = int(run)
    if not (0 < len(source) <= NAME_LENGTH_MAX and 0 <= incarnation <= INCARNATION_MAX):
        raise ValueError(source)
    return ProcessName(source), incarnation
