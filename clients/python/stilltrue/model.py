"""The types of detection: parties, waits, messages, verdicts, named as in docs/design.md section 1.

Everything here is an immutable value. Times are seconds since the Unix epoch (UTC) as ``float``; no clock is read here.
The types of one process's local state are in :mod:`stilltrue.protocol.report`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import NewType

ProcessName = NewType("ProcessName", str)
"""The unique name of a running process (a pod's name, for example); contains no ``/``."""

PartyName = NewType("PartyName", str)
"""The name of a party: ``process/name``, or a process's name without ``/`` if the process is its own party."""

SnapshotId = NewType("SnapshotId", int)
"""The number of a snapshot; always rises, also across restarts. A process's colour is a snapshot id."""

CallNumber = NewType("CallNumber", int)
"""A caller's number for a call: 1, 2, 3 ... within one incarnation."""

WaitNumber = NewType("WaitNumber", int)
"""The number of one wait within one process; each new wait gets a new number."""

Fact = int | float | str | bool
Facts = Mapping[str, Fact]
NO_FACTS: Facts = MappingProxyType({})
UNKNOWN_FACT = "unknown"
"""The value of a fact whose amount in a process or message is unknown (it may be none)."""


class Activity(str, Enum):
    """The activity of a process or party; unknown is ``ACTIVE``. Equals its text, such as ``"idle"``."""

    ACTIVE = "active"
    IDLE = "idle"
    BLOCKED = "blocked"


class Holds(str, Enum):
    """The answer to a predicate; docs/design.md section 2 defines what each means. Equals its text, such as ``"true"``.

    Compare it: ``if verdict.holds == Holds.TRUE``. As a condition by itself, each is true, ``FALSE`` as well.
    """

    TRUE = "true"
    FALSE = "false"
    UNDETERMINED = "undetermined"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessId:
    """One incarnation of one process: its service, its instance, and which run of that instance.

    ``instance`` is globally unique and is the process's name; ``incarnation`` differs for each of its starts.
    """

    service: str
    instance: ProcessName
    incarnation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """A wait: ``waiter`` goes on when ``needs`` of ``among`` have come; several waits of one waiter must all end.

    ``deadline`` is when the wait ends by itself (None: never), ``since`` when it began (None: unknown). ``uncoloured``: no
    stamp confirms the wait, so a verdict that rests on it needs confirmation by ``number``. ``what`` describes it to people.
    """

    waiter: PartyName
    among: tuple[PartyName, ...]
    needs: int = 1
    deadline: float | None = None
    since: float | None = None
    number: WaitNumber | None = None
    uncoloured: bool = False
    what: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message in transit: sent before the source's cut, not received before the target's.

    ``target`` is None if the receiving process is unknown.
    """

    source: ProcessName
    target: ProcessName | None
    facts: Facts = field(default_factory=lambda: NO_FACTS)
    what: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessState:
    """The state of one process in a snapshot: its activity at its cut, its declared facts, its service and labels."""

    activity: Activity = Activity.ACTIVE
    facts: Facts = field(default_factory=lambda: NO_FACTS)
    service: str = ""
    labels: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotRef:
    """The snapshot that a verdict is about: id, scope, begin and end (seconds since the epoch), number of expected members."""

    id: SnapshotId | None = None
    scope: str = "all"
    begun: float | None = None
    ended: float | None = None
    members: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Witness:
    """The smallest evidence that a person can check: its kind, the parties that it names, and its text.

    ``kind`` is ``"cycle"``, ``"knot"``, ``"free"``, ``"missing"``, ``"unconfirmed"`` or a predicate's own word.
    """

    kind: str
    parties: tuple[PartyName, ...]
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Where a party waits: its ``stack``, innermost frame first, as ``file:line in function``, and its call's trace id."""

    party: PartyName
    stack: tuple[str, ...] = ()
    trace: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlindSpot:
    """A process that an answer does not cover, or covers only in part, with the reasons as text."""

    process: ProcessName
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """The members that an answer covers: ``members`` of ``expected``; not ``blind``, and ``partly`` only in part."""

    members: int
    expected: int
    blind: tuple[BlindSpot, ...] = ()
    partly: tuple[BlindSpot, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """A predicate's answer about one snapshot, with the evidence; every sequence is sorted.

    ``remainder`` = ``core`` + ``behind``. ``until`` is the time (seconds since the epoch) up to which the answer holds if only
    a deadline can end it, else None. ``explanation`` has one sentence per wait of the witness; ``victims`` is the smallest set
    found of parties whose abort frees the remainder; ``decisive`` are the missing processes on which an undetermined answer
    depends. ``evidence`` is where the verification round saw the named parties; ``assumptions`` are those of a TRUE, as text.
    ``coverage``: the members that the answer covers; None if unknown.
    """

    predicate: str
    holds: Holds
    witness: Witness
    snapshot: SnapshotRef = SnapshotRef()
    remainder: tuple[PartyName, ...] = ()
    core: tuple[PartyName, ...] = ()
    behind: tuple[PartyName, ...] = ()
    missing: tuple[ProcessName, ...] = ()
    decisive: tuple[ProcessName, ...] = ()
    until: float | None = None
    explanation: tuple[str, ...] = ()
    victims: tuple[PartyName, ...] = ()
    evidence: tuple[Evidence, ...] = ()
    assumptions: tuple[str, ...] = ()
    coverage: Coverage | None = None


def process_of(party: PartyName) -> ProcessName:
    """The process that ``party`` belongs to: the part before the first ``/``, or the whole name."""
    return ProcessName(party.split("/", 1)[0])


def party(process: ProcessName, name: str) -> PartyName:
    """The full name of a party in a process."""
    return PartyName(f"{process}/{name}")


ENDED = "ended:"
"""Prefix of the name of a party that stands for an ended holder, which has left a share behind; it waits for itself."""
LOCK = "lock-"
"""Prefix of the name of a party that stands for a lock of which a probe reports the holder."""


def has_ended(party: PartyName) -> bool:
    """Whether ``party`` stands for an ended holder."""
    return party.partition("/")[2].startswith(ENDED)
