"""Large snapshots are assembled and verified on threads, with the same answers, incidents and failures."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from detector.core.protocol.assembler import PendingSnapshot
from detector.core.verification.verifier import Verifier
from detector.service.detection import driver, verification_rounds
from stilltrue.v1 import snapshot_pb2

TRUE, FALSE, UNDETERMINED = snapshot_pb2.HOLDS_TRUE, snapshot_pb2.HOLDS_FALSE, snapshot_pb2.HOLDS_UNDETERMINED


@pytest.fixture(params=["at once", "apart"], autouse=True)
def apart(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether snapshots of two members count as large ones."""
    if request.param == "apart":
        monkeypatch.setattr(driver, "THREAD_MEMBERS_MIN", 2)
        monkeypatch.setattr(verification_rounds, "THREAD_WEIGHT_MIN", 2)
    return bool(request.param == "apart")


async def test_a_deadlock_is_verified_and_opens_one_incident(
    start_detector: Any, process: Any, deadlock: Any, tmp_path: Path
) -> None:
    a, b = process("a"), process("b")
    async with start_detector(tmp_path, look_again_seconds_min=0) as detector:
        await detector.join(a, b)
        assert (await detector.ask()).holds == FALSE
        stuck = deadlock(a, b)
        while (verdict := await detector.ask()).holds != TRUE:
            assert verdict.holds in {FALSE, UNDETERMINED}
        assert list(verdict.core) == stuck.core
        again = await asyncio.gather(*(detector.ask() for _ in range(10)))
        assert {(one.holds, tuple(one.core)) for one in again} == {(TRUE, tuple(stuck.core))}
        assert [list(one.core) for one in await detector.incidents() if one.predicate == "deadlock"] == [stuck.core]


async def test_a_member_that_does_not_look_makes_the_answer_undetermined(
    start_detector: Any, process: Any, deadlock: Any, tmp_path: Path
) -> None:
    a, b = process("a"), process("b")
    deadlock(a, b)
    async with start_detector(tmp_path, look_give_up_seconds=0.3) as detector:
        await detector.join(a, b)
        b.blind = True
        assert (await detector.ask()).holds == UNDETERMINED


async def test_a_snapshot_that_cannot_be_assembled_affects_no_other(
    start_detector: Any, process: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    whole = PendingSnapshot.assembled
    failed: list[int] = []

    def fails_once(self: PendingSnapshot, *given: Any) -> Any:
        if not failed:
            failed.append(self.id)
            raise RuntimeError("out of luck")
        return whole(self, *given)

    monkeypatch.setattr(PendingSnapshot, "assembled", fails_once)
    async with start_detector(tmp_path, period_seconds=0.1) as detector:
        await detector.join(process("a"), process("b"))
        while not failed:
            await asyncio.sleep(0)
        assert (await detector.ask()).holds == FALSE
    assert "snapshot failed" in caplog.text


async def test_a_failed_round_fails_its_waiters_and_the_next_one_runs(
    start_detector: Any, process: Any, deadlock: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = Verifier.suspected
    failed: list[object] = []

    def fails_once(self: Verifier, *given: Any) -> Any:
        if not failed:
            failed.append(self)
            raise RuntimeError("out of luck")
        return whole(self, *given)

    a, b = process("a"), process("b")
    deadlock(a, b)
    monkeypatch.setattr(Verifier, "suspected", fails_once)
    async with start_detector(tmp_path, period_seconds=0.1, look_again_seconds_min=0) as detector:
        await detector.join(a, b)
        while not failed:
            await asyncio.sleep(0)
        while (await detector.ask()).holds != TRUE:
            pass
