"""The types of the verification round (protocol rule 10): the detector's request to look again, and a process's answer."""

from __future__ import annotations

from dataclasses import dataclass

from stilltrue.model import PartyName, SnapshotId, WaitNumber


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspect:
    """A party to look at, and the numbers of the waits that its process reported for it."""

    party: PartyName
    waits: tuple[WaitNumber, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LookRequest:
    """Look at these parties of one process. ``activity``: also look for work that no party accounts for (termination)."""

    snapshot: SnapshotId
    suspects: tuple[Suspect, ...] = ()
    activity: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class WayOut:
    """Something that may end a party's wait from outside, as text. With ``party``, only if that party itself can go on."""

    text: str
    party: PartyName | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartyLook:
    """The result of looking at one suspect.

    ``unchanged``: each of its waits is still in force. ``deadline``: when the first of them ends by itself at the latest
    (seconds since the epoch by the process's clock). ``doubt``: why it could not be looked at (empty: it was). ``stack``: where
    its thread or task is, innermost frame first, as ``file:line in function``. ``trace``: the trace id of its call.
    ``interruptible``: its waits also end when the call it serves is cancelled or times out (its context passes that on).
    ``grown_by``: what may add workers to the pool in which it serves, as text (empty: nothing known).
    """

    party: PartyName
    unchanged: bool
    deadline: float | None = None
    ways_out: tuple[WayOut, ...] = ()
    doubt: str = ""
    stack: tuple[str, ...] = ()
    trace: str = ""
    interruptible: bool = False
    grown_by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """A process's answer to a :class:`LookRequest`.

    ``happenings`` counts the events recorded since the process started: if it equals the report's count, nothing has happened
    since the cut. ``unaccounted``: threads, timers, callbacks and tasks that may still act, as text (only with ``activity``).
    """

    snapshot: SnapshotId
    parties: tuple[PartyLook, ...] = ()
    happenings: int = 0
    unaccounted: tuple[str, ...] = ()
