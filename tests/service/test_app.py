"""The service end to end, on loopback: members join, a snapshot is taken, the answer is right, and a bad neighbour hurts nobody."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from stilltrue.v1 import detector_pb2, snapshot_pb2


async def ask(detector: Any, predicate: str = "deadlock", scope: str = "") -> snapshot_pb2.Verdict:
    answer = await detector.stub.Ask(detector_pb2.AskRequest(predicate=predicate, scope=scope), timeout=10)
    return answer.verdict


async def test_a_deadlock_is_true_with_exactly_its_core(
    start_detector: Any, process: Any, deadlock: Any, tmp_path: Path
) -> None:
    a, b, c = (process(name) for name in "abc")
    stuck = deadlock(a, b)
    async with start_detector(tmp_path) as detector:
        await detector.join(a, b, c)
        verdict = await ask(detector)
        assert verdict.holds == snapshot_pb2.HOLDS_TRUE
        assert list(verdict.core) == stuck.core
        assert verdict.snapshot.members == 3
        stuck.cure()
        verdict = await ask(detector)
        assert verdict.holds == snapshot_pb2.HOLDS_FALSE


async def test_nobody_connected_is_undetermined(start_detector: Any, tmp_path: Path) -> None:
    async with start_detector(tmp_path) as detector:
        for predicate in ("deadlock", "termination"):
            verdict = await ask(detector, predicate)
            assert verdict.holds == snapshot_pb2.HOLDS_UNDETERMINED
            assert "no process is connected" in verdict.witness.text
