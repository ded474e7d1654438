"""Partial evaluation: a late or far larger report does not delay the verdict on a cycle of others."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from detector.core.protocol import assembler
from detector.core.protocol.assembler import DEFERRED, Assembled, PendingSnapshot
from detector.service.detection import driver
from stilltrue.model import Activity, PartyName, WaitNumber
from stilltrue.protocol.report import LocalWait, PartyTarget, Report
from stilltrue.v1 import snapshot_pb2

TRUE, FALSE, UNDETERMINED = snapshot_pb2.HOLDS_TRUE, snapshot_pb2.HOLDS_FALSE, snapshot_pb2.HOLDS_UNDETERMINED
WAITS = 40
"""A report with so many counts as heavy here."""


@pytest.fixture
def small_is_heavy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assembler, "HEAVY_ENTRIES_MIN", WAITS)
    monkeypatch.setattr(assembler, "HEAVY_TIMES_MIN", 3)
    monkeypatch.setattr(assembler, "HEAVY_TYPICAL_MIN", 1)
    monkeypatch.setattr(driver, "THREAD_MEMBERS_MIN", 2)


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """While it is set, no snapshot is assembled as a whole, where one was put off for its size."""
    whole, hold = PendingSnapshot.assembled, threading.Event()
    freed = threading.Condition()

    def assembled(self: PendingSnapshot, *given: Any) -> Assembled:
        while self.heavy and hold.is_set():
            with freed:
                freed.wait(0.02)
        return whole(self, *given)

    monkeypatch.setattr(PendingSnapshot, "assembled", assembled)
    return hold


def full_of_waits(name: str, *also: LocalWait) -> Callable[[Report], Report]:
    """Its parties wait for one that can move."""
    free = PartyTarget(party=PartyName(f"{name}/free"))
    waits = [
        LocalWait(waiter=PartyName(f"{name}/w{at}"), number=WaitNumber(1000 + at), among=(free,), needs=1, since=0.0)
        for at in range(WAITS)
    ]
    return lambda report: replace(report, waits=(*report.waits, *waits, *also), activity=Activity.ACTIVE)


async def true_in_the_end(detector: Any) -> Any:
    while (verdict := await detector.ask(seconds_max=60)).holds != TRUE:
        pass
    return verdict


async def open_cores(detector: Any) -> list[list[str]]:
    """The cores of the open deadlocks."""
    incidents = await detector.incidents()
    return sorted(list(one.core) for one in incidents if one.predicate == "deadlock" and not one.HasField("closed"))


async def test_a_silent_member_does_not_delay_a_cycle_of_others(
    start_detector: Any, process: Any, deadlock: Any, tmp_path: Path
) -> None:
    a, b, late = process("a"), process("b"), process("late")
    stuck = deadlock(a, b)
    async with start_detector(tmp_path, give_up_seconds=60, lease_seconds=600) as detector:
        late.silent = True
        await detector.join(a, b, late)
        assert await detector.deadlock(25) == (TRUE, stuck.core)
        assert await open_cores(detector) == [stuck.core]


async def test_a_cycle_gets_both_its_rounds_while_a_member_is_silent(
    start_detector: Any, process: Any, deadlock: Any, tmp_path: Path
) -> None:
    """Its calls may be retried, so a second snapshot must confirm the first."""
    a, b, late = process("a"), process("b"), process("late")
    stuck = deadlock(a, b)
    for one in (a, b):
        one.change = lambda report: replace(report, made=tuple(replace(call, copies_max=2) for call in report.made))
    async with start_detector(tmp_path, give_up_seconds=60, lease_seconds=600) as detector:
        late.silent = True
        await detector.join(a, b, late)
        assert await detector.deadlock(25) == (TRUE, stuck.core)


async def test_a_silent_member_on_the_cycle_is_waited_for(
    start_detector: Any, process: Any, deadlock: Any, tmp_path: Path
) -> None:
    a, b = process("a"), process("b")
    deadlock(a, b)
    async with start_detector(tmp_path, give_up_seconds=2) as detector:
        b.silent = True
        await detector.join(a, b)
        verdict = await detector.ask(seconds_max=60)
        assert (verdict.holds, list(verdict.missing)) == (UNDETERMINED, ["b"])


@pytest.mark.usefixtures("small_is_heavy")
async def test_a_far_larger_report_does_not_delay_a_cycle_of_others(
    start_detector: Any, process: Any, deadlock: Any, tmp_path: Path, held: threading.Event
) -> None:
    a, b, c, large = (process(name) for name in ("a", "b", "c", "large"))
    large.change = full_of_waits("large")
    async with start_detector(tmp_path) as detector:
        await detector.join(a, b, c, large)
        assert (await detector.ask(seconds_max=60)).holds == FALSE, "of all, the large one among them"
        stuck = deadlock(a, b)
        held.set()
        verdict = await detector.ask(seconds_max=60)
        assert (verdict.holds, list(verdict.core)) == (TRUE, stuck.core)
        assert DEFERRED in str(verdict.coverage)
        held.clear()


@pytest.mark.usefixtures("small_is_heavy")
async def test_a_cycle_through_a_far_larger_report_is_called_once_it_is_evaluated(
    start_detector: Any, process: Any, deadlock: Any, tmp_path: Path
) -> None:
    a, b, large = process("a"), process("b"), process("large")
    large.change = full_of_waits("large")
    stuck = deadlock(a, large)
    async with start_detector(tmp_path) as detector:
        await detector.join(a, b, large)
        verdict = await true_in_the_end(detector)
        assert list(verdict.core) == stuck.core


@pytest.mark.usefixtures("small_is_heavy")
async def test_snapshots_taken_while_large_reports_are_evaluated_are_stored_without_them(
    start_detector: Any, process: Any, deadlock: Any, tmp_path: Path, held: threading.Event
) -> None:
    a, b, c, large = (process(name) for name in ("a", "b", "c", "large"))
    large.change = full_of_waits("large")
    stuck = deadlock(a, b)
    both = deadlock(c, large)
    async with start_detector(tmp_path) as detector:
        await detector.join(a, b, c, large)
        while await open_cores(detector) != sorted([stuck.core, both.core]):
            await detector.ask(seconds_max=60)
        held.set()
        answers = [await detector.ask(seconds_max=60) for _ in range(8)]
        assert {(one.holds, tuple(one.core)) for one in answers} == {(TRUE, tuple(stuck.core))}
        assert await open_cores(detector) == sorted([stuck.core, both.core]), "what was put off ends no incident"
        held.clear()
        both.cure()
        while await open_cores(detector) != [stuck.core]:
            assert (await detector.ask(seconds_max=60)).holds == TRUE
