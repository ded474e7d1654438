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
"""Who can wait: ``process/name``; a name without ``/`` is a process that is its own party."""

SnapshotId = NewType("SnapshotId", int)
"""The number of a snapshot; always rises, also across restarts. A process's colour is one of these."""

CallNumber = NewType("CallNumber", int)
"""The number that a caller gives to a call; 1, 2, 3 ... within one incarnation."""

WaitNumber = NewType("WaitNumber", int)
"""The number of one wait within one process; each new wait gets a new number."""

Fact = int | float | str | bool
Facts = Mapping[str, Fact]
NO_FACTS: Facts = MappingProxyType({})
UNKNOWN_FACT = "unknown"
"""The amount of a fact of which it is not known how much a process has, or a message carries: none or more."""


class Activity(Enum):
    """What a process (or party) is doing; unknown is ``ACTIVE``."""

    ACTIVE = "active"
    IDLE = "idle"
    BLOCKED = "blocked"


class Holds(Enum):
    """The answer to a predicate; docs/design.md section 2 says what each promises."""

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
    """``waiter`` can go on when ``needs`` of ``among`` are satisfied; several waits of one waiter must all end.

    ``deadline`` is when the wait ends by itself (None: never). ``uncoloured`` says that no stamp confirms it, so that a
    verdict that rests on it needs confirmation by ``number``. ``what`` is a text for people: what is waited for.
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

    ``target`` is None if it is unknown which process will receive it.
    """

    source: ProcessName
    target: ProcessName | None
    facts: Facts = field(default_factory=lambda: NO_FACTS)
    what: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessState:
    """What a snapshot knows of one process: its activity at its cut, the facts it declared, its labels."""

    activity: Activity = Activity.ACTIVE
    facts: Facts = field(default_factory=lambda: NO_FACTS)
    service: str = ""
    labels: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotRef:
    """Which snapshot a verdict is about: its id, scope, when it began and ended (seconds), how many members it expected."""

    id: SnapshotId | None = None
    scope: str = "all"
    begun: float | None = None
    ended: float | None = None
    members: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Witness:
    """The smallest evidence a person can check: its kind, the parties it names, and the sentences.

    ``kind`` is ``"cycle"``, ``"knot"``, ``"free"``, ``"missing"``, ``"unconfirmed"`` or a predicate's own word.
    """

    kind: str
    parties: tuple[PartyName, ...]
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Where a party waits: its ``stack``, innermost frame first, as ``file:line in function``; its call's trace id."""

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
    """The members that an answer covers: ``members`` of ``expected``, not the ``blind``, and the ``partly`` only in part."""

    members: int
    expected: int
    blind: tuple[BlindSpot, ...] = ()
    partly: tuple[BlindSpot, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """A predicate's answer about one snapshot, with the evidence; every sequence is sorted.

    ``remainder`` = ``core`` + ``behind``. ``until`` (seconds since the epoch) is the time up to which the answer holds when
    only a deadline can end it, else None. ``explanation`` has one sentence per wait of the witness; ``victims`` is the
    smallest set of parties found whose abort frees the remainder; ``decisive`` are the missing processes on which an
    undetermined answer depends. ``evidence`` is what the verification round saw of the parties named, ``assumptions`` what a
    TRUE rests on, as text. ``coverage`` says which members the answer covers; None if unknown.
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
    """The full name of a party inside a process."""
    return PartyName(f"{process}/{name}")


ENDED = "ended:"
"""How the name of a party begins that stands for a holder which has ended, and has left what it held: it waits for itself."""


def has_ended(party: PartyName) -> bool:
    """Whether ``party`` stands for a holder that has ended."""
    return party.partition("/")[2].startswith(ENDED)
