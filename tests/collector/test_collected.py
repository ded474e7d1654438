"""Agents behind collectors: the coordinator answers as one detector would, with the same verdicts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from stilltrue.v1 import snapshot_pb2
from tests.collector.kafka_in_memory import KafkaInMemory


async def test_deadlock(start_collected: Any, process: Any, deadlock: Any, tmp_path: Path) -> None:
    async with start_collected(tmp_path) as coordinator:
        a, b = process("a"), process("b")
        await coordinator.join(a, b)
        verdict = await coordinator.ask()
        assert verdict.holds == snapshot_pb2.HOLDS_FALSE
        stuck = deadlock(a, b)
        verdict = await coordinator.ask()
        assert verdict.holds == snapshot_pb2.HOLDS_TRUE, verdict
        assert list(verdict.core) == stuck.core
        assert len(await coordinator.incidents()) == 1
