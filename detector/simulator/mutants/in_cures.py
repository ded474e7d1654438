"""The wrong functions of the mutants of cures; each takes the right one."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from detector.core.snapshot import Snapshot
from detector.predicates.deadlock import Deadlock
from stilltrue.model import PartyName

Function = Callable[..., Any]


def frees_everybody(_right: Function) -> Function:
    """All stuck parties go on, no matter which is aborted."""

    def freed_by(snapshot: Snapshot, aborted: Collection[PartyName]) -> tuple[PartyName, ...]:
        return tuple({*Deadlock().evaluate(snapshot).remainder} - {*aborted})

    return freed_by


def frees_the_next(_right: Function) -> Function:
    """Only those go on who wait for a victim itself."""

    def freed_by(snapshot: Snapshot, aborted: Collection[PartyName]) -> tuple[PartyName, ...]:
        waits = snapshot.waits.waits()
        return tuple({wait.waiter for wait in waits if {*wait.among} & {*aborted}} - {*aborted})

    return freed_by
