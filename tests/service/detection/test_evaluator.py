"""The evaluator: a predicate that raises or never ends affects only its own answer."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from detector.predicates.deadlock import Deadlock as DeadlockPredicate
from detector.service.detection import snapshot_verdicts
from stilltrue.model import Verdict
from stilltrue.v1 import snapshot_pb2

TRUE, FALSE, UNDETERMINED = snapshot_pb2.HOLDS_TRUE, snapshot_pb2.HOLDS_FALSE, snapshot_pb2.HOLDS_UNDETERMINED


class Raises:
    name = "raises"
    treats_missing = True

    def evaluate(self, snapshot: Any) -> Verdict:
        raise ValueError("my own fault")


class Never:
    name = "never"
    treats_missing = True

    def __init__(self) -> None:
        self.asked = 0

    def evaluate(self, snapshot: Any) -> Verdict:
        self.asked += 1
        while True:
            time.sleep(0.05)


async def test_a_predicate_that_raises_or_never_ends_affects_only_its_own_answer(
    start_detector: Any, process: Any, deadlock: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    a, b = process("a"), process("b")
    deadlock(a, b)
    never = Never()
    plugins = [DeadlockPredicate(), Raises(), never]
    async with start_detector(tmp_path, plugins, evaluation_seconds_max=0.3) as detector:
        await detector.join(a, b)
        for _ in range(3):
            assert (await detector.ask()).holds == TRUE
        raised = await detector.ask("raises")
        assert raised.holds == UNDETERMINED
        assert "'raises' failed: ValueError: my own fault (test_evaluator.py:" in raised.witness.text
        await detector.ask("raises")
        failures = [record for record in caplog.records if record.getMessage() == "predicate failed"]
        assert len(failures) == 1  # every snapshot fails alike
        overran = await detector.ask("never")
        assert overran.holds == UNDETERMINED
        assert "longer than 0.3 s" in overran.witness.text
        assert never.asked == 1
        assert await detector.metric('stilltrue_predicate_failures_total{predicate="never",reason="overrun"}') >= 1


class Slow:
    name = "slow"
    treats_missing = True

    def __init__(self) -> None:
        self.asked = 0
        self.may_end = threading.Event()

    def evaluate(self, snapshot: Any) -> Verdict:
        self.asked += 1
        self.may_end.wait(30)
        raise ValueError("late")


async def test_an_abandoned_evaluation_is_not_started(start_detector: Any, process: Any, tmp_path: Path) -> None:
    slow = Slow()
    async with start_detector(tmp_path, [slow], evaluation_seconds_max=0.1) as detector:
        await detector.join(process("a"))
        for _ in range(3):
            assert "longer than 0.1 s" in (await detector.ask("slow")).witness.text
        slow.may_end.set()
        await asyncio.sleep(0.3)
        assert slow.asked == 1


class Noted:
    """Writes down when it begins and ends; it ends when it may."""

    treats_missing = True

    def __init__(self, name: str, notes: list[str]) -> None:
        self.name = name
        self.may_end = threading.Event()
        self._notes = notes

    def evaluate(self, snapshot: Any) -> Verdict:
        self._notes.append(f"{self.name} begins")
        self.may_end.wait(30)
        self._notes.append(f"{self.name} ends")
        return DeadlockPredicate().evaluate(snapshot)


async def test_a_predicate_in_question_is_evaluated_first(
    start_detector: Any, process: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot_verdicts, "HEAD_START_SECONDS", 30.0)
    notes: list[str] = []
    other, asked = Noted("a", notes), Noted("z", notes)
    other.may_end.set()
    async with start_detector(tmp_path, [other, asked]) as detector:
        await detector.join(process("a"))
        answer = asyncio.create_task(detector.ask("z"))
        await _until(lambda: "z begins" in notes)
        asked.may_end.set()
        assert (await answer).holds == FALSE
        await _until(lambda: len(notes) == 4)
        assert notes == ["z begins", "z ends", "a begins", "a ends"]


async def test_a_predicate_that_never_ends_delays_the_others_only_briefly(
    start_detector: Any, process: Any, tmp_path: Path
) -> None:
    notes: list[str] = []
    other, asked = Noted("a", notes), Noted("z", notes)
    other.may_end.set()
    async with start_detector(tmp_path, [other, asked], evaluation_seconds_max=30) as detector:
        await detector.join(process("a"))
        answer = asyncio.create_task(detector.ask("z", seconds_max=60))
        await _until(lambda: "a ends" in notes)
        assert "z ends" not in notes
        asked.may_end.set()
        assert (await answer).holds == FALSE


async def _until(what: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not what():
            await asyncio.sleep(0.005)
