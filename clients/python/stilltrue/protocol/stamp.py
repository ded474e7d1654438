"""The stamp that every message carries, and its one line of text in gRPC metadata.

The text is ``source;incarnation;number;colour;floor``, all decimal but the source: short, printable, and the same in every
language. A request's may end with ``;~mark~mark~``: its sender knows the processes with these marks to serve its channel, so
their replies need no stamp if it would say nothing new (rule 1). A tag may follow (:mod:`stilltrue.protocol.stamp_tag`),
which only holders of a key can check. A stamp that cannot be parsed is ignored: the message counts as one from outside (fail
open).
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
"""The highest number, which every language and JSON can hold exactly."""
INCARNATION_MAX = 2**63 - 1
"""Incarnations are random: as long as a signed 64-bit integer allows."""

NAME_LENGTH_MAX = 253
"""Characters in a process's name at the most (a Kubernetes object name's limit)."""
SENDERS_MAX = 1_024
"""Senders whose names are parsed once."""
_PARTS = 5
_MARK_BYTES = 8
_KNOWN_LENGTH_MAX = 200


class Stamp(NamedTuple):
    """Who sent a message, its number, the sender's colour and floor (docs/design.md section 3, rules 1 and 3).

    ``number`` is the caller's number for the call, on the request and on the reply alike. ``floor`` is the lowest number that
    is still outstanding at the source: each call below it is over for its caller. ``known``: the marks of the servers that the
    caller knows. A tuple, since each message makes one.
    """

    source: ProcessName
    incarnation: int
    number: CallNumber
    colour: SnapshotId
    floor: CallNumber
    known: str = ""


_new = tuple.__new__  # makes a stamp twice as fast as by its name: one is made for each message


def encode(stamp: Stamp) -> str:
    """The stamp as a metadata value."""
    source, incarnation, number, colour, floor, known = stamp
    if known:
        return f"{source};{incarnation};{number};{colour};{floor};{known}"
    return f"{source};{incarnation};{number};{colour};{floor}"


def marked(source: ProcessName, incarnation: int) -> str:
    """The mark of a process, as ``known`` has it if its caller knows it."""
    return f"~{blake2b(f'{source};{incarnation}'.encode(), digest_size=_MARK_BYTES).hexdigest()}~"


def all_marked(processes: Iterable[tuple[ProcessName, int]]) -> str:
    """The marks of several processes."""
    return "".join(marked(*one)[:-1] for one in processes) + "~"


def decode(text: str | bytes) -> Stamp | None:
    """The stamp that ``text`` holds; None when it holds none."""
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
    if known and (known[0] != "~" or len(known) > _KNOWN_LENGTH_MAX):
        known = ""  # a tag that nobody here can check
    if (number | colour | floor) >> NUMBER_BITS and not _are_numbers(number, colour, floor):
        return None
    stamp: Stamp = _new(Stamp, (source, incarnation, number, colour, floor, known))
    return stamp


def _are_numbers(*numbers: int) -> bool:
    return all(0 <= number <= NUMBER_MAX for number in numbers)


@lru_cache(maxsize=SENDERS_MAX)
def _sender(source: str, run: str) -> tuple[ProcessName, int]:
    """The process and incarnation as a stamp has them, the same in each of its stamps. Raises ValueError."""
    incarnation = int(run)
    if not (0 < len(source) <= NAME_LENGTH_MAX and 0 <= incarnation <= INCARNATION_MAX):
        raise ValueError(source)
    return ProcessName(source), incarnation
