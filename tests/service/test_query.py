"""The client API for programs, against a running detector: only verdicts, whatever else arrives."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest

from stilltrue import Detector
from stilltrue.model import Holds


async def test_a_program_asks_and_watches(start_detector: Any, process: Any, deadlock: Any, tmp_path: Path) -> None:
    a, b = process("a"), process("b")
    async with start_detector(tmp_path, heartbeat_seconds=0.1) as running:
        await running.join(a, b)
        with Detector(running.address) as detector:
            asked = await asyncio.to_thread(detector.ask, "deadlock")
            assert asked.holds is Holds.FALSE
            verdicts = detector.watch("deadlock")
            assert (await asyncio.to_thread(next, verdicts)).holds is Holds.FALSE
            told = asyncio.create_task(asyncio.to_thread(next, verdicts))
            done, _ = await asyncio.wait([told], timeout=0.5)  # several signs of life, and no news
            assert not done
            broken = deadlock(a, b)
            assert (await asyncio.to_thread(detector.ask, "deadlock")).core == tuple(broken.core)
            assert (await asyncio.wait_for(told, 10)).holds is Holds.TRUE


@pytest.mark.parametrize("query", [lambda detector: detector.ask("deadlock"), lambda detector: next(detector.watch())])
def test_without_a_detector_the_error_says_where_it_was_sought(query: Callable[[Detector], Any]) -> None:
    with Detector("127.0.0.1:1") as detector, pytest.raises(grpc.RpcError) as raised:
        query(detector)
    assert raised.value.code() is grpc.StatusCode.UNAVAILABLE
    assert ["127.0.0.1:1" in note and "stilltrue serve" in note for note in raised.value.__notes__] == [True]
