"""Mutant functions for the recorder; each takes the original function."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from stilltrue.model import NO_FACTS, Activity, CallNumber, Facts, SnapshotId
from stilltrue.protocol.books.answered_calls import CallerMemory, Callers
from stilltrue.protocol.local_state import LocalState
from stilltrue.protocol.recorder import Recorder
from stilltrue.protocol.report import Report
from stilltrue.protocol.stamp import Stamp
from stilltrue.protocol.step import Step

Function = Callable[..., Any]


def silent_once_known(right: Function) -> Function:
    """A reply to a caller that already knows the server carries no stamp, whatever the colour."""

    def replied(self: Recorder, served: Any, **rest: Any) -> Stamp | None:
        stamp: Stamp | None = right(self, served, **rest)
        return stamp if served.unstamped_colour < 0 else None

    return replied


def arrives_then_cuts(right: Function) -> Function:
    """The request is recorded before the cut, which should come first."""

    def arrived(self: Recorder, stamp: Stamp | None, **rest: Any) -> tuple[Any, Report | None]:
        served, _ = right(self, stamp and stamp._replace(colour=SnapshotId(0)), **rest)
        return served, self.coloured(stamp, rest["now"])

    return arrived


def settles_then_cuts(right: Function) -> Function:
    """Like :func:`arrives_then_cuts`, for replies."""

    def settled(self: Recorder, made: Any, stamp: Stamp | None, now: float, **rest: Any) -> Report | None:
        right(self, made, stamp and stamp._replace(colour=SnapshotId(0)), now, **rest)
        return self.coloured(stamp, now)

    return settled


def serves_all_before(right: Function) -> Function:
    """The cut claims to serve every snapshot up to its own."""
    return lambda self, snapshot, now: replace(right(self, snapshot, now), after=SnapshotId(0))


def high_floor(right: Function) -> Function:
    """The stamp claims that nothing is outstanding."""

    def sent(self: Recorder, *given: Any, **rest: Any) -> Any:
        made, stamp = right(self, *given, **rest)
        return made, stamp._replace(floor=CallNumber(made.number + 1))

    return sent


def sends_then_changes(right: Function) -> Function:
    """A fact still counts after its message has left; it changes only with the process's next call."""
    late: dict[int, Facts] = {}

    def sent(self: Recorder, *, step: Step | None = None, **rest: Any) -> Any:
        self.fact(late.pop(id(self), NO_FACTS))
        if step is not None and step.changes:
            late[id(self)], step.changes = step.changes, {}
        return right(self, step=step, **rest)

    return sent


def no_doubt(right: Function) -> Function:
    """The caller believes that a failed call was never received."""

    def settled(self: Recorder, *given: Any, in_doubt: bool = False, **rest: Any) -> Report | None:  # noqa: ARG001
        report: Report | None = right(self, *given, **rest)
        return report

    return settled


def reactive_is_idle(right: Function) -> Function:
    """A reactive process counts as idle although it still serves."""

    def activity(self: LocalState) -> Activity:
        found: Activity = right(self)
        return Activity.IDLE if found is Activity.ACTIVE and not self.made else found

    return activity


def forgets_callers_quietly(right: Function) -> Function:
    """A caller is forgotten to save space, but the report does not say so."""

    def begin(self: Callers, caller: Any) -> CallerMemory:
        lost = self.lost
        memory: CallerMemory = right(self, caller)
        self.lost = lost
        return memory

    return begin


def forgets_answers_quietly(right: Function) -> Function:
    """Answers are forgotten to save space, but the report does not say so."""
    return lambda self: replace(right(self), forgotten=CallNumber(0))
