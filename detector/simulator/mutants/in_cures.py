"""Mutant functions for cures; each takes the original function."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from detector.core.snapshot import Snapshot
from detector.predicates.deadlock import Deadlock
from stilltrue.model import PartyName

Function = Callable[..., Any]


def frees_all(_right: Function) -> Function:
    """All stuck parties are freed, no matter which one is aborted."""

    def freed_by(snapshot: Snapshot, aborted: Collection[PartyName]) -> tuple[PartyName, ...]:
        return tuple({*Deadlock().evaluate(snapshot).remainder} - {*aborted})

    return freed_by


def frees_direct_waiters(_right: Function) -> Function:
    """Only parties that wait directly for a victim are freed."""

    def freed_by(snapshot: Snapshot, aborted: Collection[PartyName]) -> tuple[PartyName, ...]:
        waits = snapshot.waits.waits()
        return tuple({wait.waiter for wait in waits if {*wait.among} & {*aborted}} - {*aborted})

    return freed_by
