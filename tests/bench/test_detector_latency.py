"""From the last event of a deadlock to TRUE, with 100 agents (STILLTRUE_BENCH_AGENTS) on one machine; the times are printed.

Each agent has 20 parties that wait for a call, and as many calls served (STILLTRUE_BENCH_PARTIES), without a deadlock. Three
processes run: the detector (``stilltrue serve``), the bystanders of ``tests.bench.fleet``, and this one, which plays the two
processes of the deadlock with the real recorder. What each takes of the processor is printed, since real agents share none.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import statistics
import time
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import grpc.aio
import pytest

from stilltrue.protocol.books.ledger import ChannelRecord
from stilltrue.runtime.membership.differences import Differences
from stilltrue.v1 import detector_pb2, detector_pb2_grpc, snapshot_pb2
from tests.bench.fleet.bodies import Fleet
from tests.bench.fleet.measure import Process, child, load_command
from tests.service import conftest as played

AGENTS = int(os.environ.get("STILLTRUE_BENCH_AGENTS", "100"))
PARTIES = int(os.environ.get("STILLTRUE_BENCH_PARTIES", "20"))
ROUNDS = int(os.environ.get("STILLTRUE_BENCH_ROUNDS", "15"))
QUIET_SECONDS = 0.3
"""A deadlock forms when the detector has stored the snapshots before it."""


@contextlib.asynccontextmanager
async def detector(data: Path) -> AsyncIterator[tuple[Process, str]]:
    """A detector that takes snapshots when asked, or requested by a process, only; and its address."""
    command = ("-m", "detector.cli", "serve", "--port", "0", "--http-port", "0", "--data", str(data))
    timing = ("--period-seconds", "0", "--trigger-seconds-min", "0.001", "--lease-seconds", "600")
    async with child(*command, *timing) as process:
        words = dict(word.split("=", 1) for word in (await process.line()).split() if "=" in word)
        yield process, words["grpc"]


def occupied(name: str) -> played.FakeProcess:
    """A process whose parties serve calls from outside, and wait for one each that leaves the fleet."""
    process = played.FakeProcess(name, service="s")
    process.differences = Differences()
    outside = ChannelRecord("stock:443")
    for _ in range(PARTIES):
        served, _ = process.recorder.arrived(None, "/s/Put", time.time(), pool="many")
        process.recorder.started(served)
        process.recorder.sent("/stock/Put", channel=outside, now=time.time(), party=served.party, waiting=True)
    return process


@pytest.mark.parametrize("how", ["ask", "wish"])
@pytest.mark.longer
async def test_last_event_to_true(tmp_path: Path, how: str) -> None:
    a, b = occupied("a"), occupied("b")
    times, used = [], []
    async with contextlib.AsyncExitStack() as stack:
        serving, address = await stack.enter_async_context(detector(tmp_path))
        channel = await stack.enter_async_context(grpc.aio.insecure_channel(address))
        stub = detector_pb2_grpc.DetectorServiceStub(channel)  # type: ignore[no-untyped-call]  # generated code
        question = detector_pb2.AskRequest(predicate="deadlock")
        others = await stack.enter_async_context(child(*load_command(Fleet(members=AGENTS - 2, entries=PARTIES), address)))
        assert (await others.line()).startswith("joined")
        await asyncio.gather(*(process.connect(address) for process in (a, b)))

        def processor() -> tuple[float, ...]:
            return serving.processor(), others.processor(), time.process_time()

        assert (await stub.Ask(question)).verdict.holds == snapshot_pb2.HOLDS_FALSE
        watch = aiter(stub.Watch(detector_pb2.WatchRequest(predicate="deadlock")))
        await anext(watch)
        for _ in range(ROUNDS):
            await asyncio.sleep(QUIET_SECONDS)
            stuck = played.Deadlock(a, b)
            before, begun = processor(), time.perf_counter()
            if how == "ask":
                verdict = (await stub.Ask(question)).verdict
            else:
                await a.say(wish={"reason": "blocked"})
                verdict = (await anext(watch)).verdict
            times.append(1000 * (time.perf_counter() - begun))
            used.append([1000 * (now - then) for now, then in zip(processor(), before, strict=True)])
            assert (verdict.holds, list(verdict.core)) == (snapshot_pb2.HOLDS_TRUE, stuck.core)
            assert verdict.snapshot.members == AGENTS
            stuck.dissolve()
            assert (await stub.Ask(question)).verdict.holds == snapshot_pb2.HOLDS_FALSE
            if how == "wish":
                assert (await anext(watch)).verdict.holds == snapshot_pb2.HOLDS_FALSE
        await asyncio.gather(*(process.kill() for process in (a, b)))
    times.sort()
    shares = ", ".join(f"{who} {statistics.fmean(of):.0f} ms" for who, of in zip(
        ("detector", "bystanders", "the deadlocked and the asker"), zip(*used, strict=True), strict=True
    ))  # fmt: skip
    print(f"\n{AGENTS} agents of {PARTIES} parties, last event to TRUE by {how}: p50 {statistics.median(times):.1f} ms, "
          f"min {times[0]:.1f} ms, max {times[-1]:.1f} ms; of the processor meanwhile: {shares}; "
          f"load average {os.getloadavg()[0]:.1f}")  # fmt: skip
