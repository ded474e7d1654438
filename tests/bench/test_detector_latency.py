"""From the last event of a deadlock to TRUE, with 100 agents (STILLTRUE_BENCH_AGENTS) on one machine; the times are printed.

The detector is a process of its own (``stilltrue serve``); the agents are the real recorder over real streams, all in
this process.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import statistics
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import grpc.aio
import pytest

from stilltrue.v1 import detector_pb2, detector_pb2_grpc, snapshot_pb2
from tests.service import conftest as fakes

AGENTS = int(os.environ.get("STILLTRUE_BENCH_AGENTS", "100"))
ROUNDS = 15


@contextlib.asynccontextmanager
async def detector(data: Path) -> AsyncIterator[str]:
    """The address of a detector that takes snapshots when asked, or requested by a process, only."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "detector.cli", "serve", "--port", "0", "--http-port", "0", "--data", str(data),
        "--period-seconds", "0", "--trigger-seconds-min", "0.001", "--lease-seconds", "600",
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        line = (await process.stdout.readline()).decode()
        yield line.split()[1].removeprefix("grpc=")
    finally:
        process.terminate()
        await process.wait()


@pytest.mark.parametrize("how", ["ask", "wish"])
async def test_last_event_to_true(tmp_path: Path, how: str) -> None:
    played = fakes
    processes = [played.FakeProcess(f"p{index:04}", service="s") for index in range(AGENTS)]
    times = []
    async with detector(tmp_path) as address, grpc.aio.insecure_channel(address) as channel:
        stub = detector_pb2_grpc.DetectorServiceStub(channel)  # type: ignore[no-untyped-call]  # generated code
        question = detector_pb2.AskRequest(predicate="deadlock")
        await asyncio.gather(*(process.connect(address) for process in processes))
        assert (await stub.Ask(question)).verdict.holds == snapshot_pb2.HOLDS_FALSE
        watch = aiter(stub.Watch(detector_pb2.WatchRequest(predicate="deadlock")))
        await anext(watch)
        for index in range(ROUNDS):
            a, b = processes[2 * index], processes[2 * index + 1]
            stuck = played.Deadlock(a, b)
            begun = time.perf_counter()
            if how == "ask":
                verdict = (await stub.Ask(question)).verdict
            else:
                await a.say(wish={"reason": "blocked"})
                verdict = (await anext(watch)).verdict
            times.append(1000 * (time.perf_counter() - begun))
            assert (verdict.holds, list(verdict.core)) == (snapshot_pb2.HOLDS_TRUE, stuck.core)
            assert verdict.snapshot.members == AGENTS
            stuck.cure()
            b.gives_up(stuck.from_b)
            b.recorder.replied(stuck.of_b)
            assert (await stub.Ask(question)).verdict.holds == snapshot_pb2.HOLDS_FALSE
            if how == "wish":
                assert (await anext(watch)).verdict.holds == snapshot_pb2.HOLDS_FALSE
        await asyncio.gather(*(process.kill() for process in processes))
    times.sort()
    print(f"\n{AGENTS} agents, last event to TRUE by {how}: p50 {statistics.median(times):.1f} ms, "
          f"min {times[0]:.1f} ms, max {times[-1]:.1f} ms")  # fmt: skip
