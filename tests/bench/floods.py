"""What an honest asker waits for while others flood the detector: ``python -m tests.bench.floods`` prints the table.

The detector is a process of its own, and so is each flood; the honest agents and the asker are this one. Everything is on
loopback, and one flood lasts for ``STILLTRUE_BENCH_SECONDS`` (5).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from stilltrue.v1 import detector_pb2_grpc, snapshot_pb2
from tests.bench.flood_kinds import AGENTS, FLOODS, QUESTION, Target, child
from tests.service.conftest import Deadlock, FakeProcess

SECONDS = float(os.environ.get("STILLTRUE_BENCH_SECONDS", "5"))
ASK_SECONDS_MAX = 60.0


@dataclass(frozen=True, slots=True)
class Waited:
    """What the honest asker saw."""

    flood: str
    seconds: tuple[float, ...]
    failed: int
    holds: frozenset[str]

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def worst(self) -> float:
        return max(self.seconds)


async def waited(name: str, seconds: float, data: Path) -> Waited:
    """One flood against a new detector. ``name`` may be empty: no flood. Two of the honest agents are deadlocked."""
    command = ("-m", "detector", "serve", "--port", "0", "--http-port", "0", "--data", str(data), "--lease-seconds", "600")
    async with contextlib.AsyncExitStack() as stack:
        _, line = await stack.enter_async_context(child(*command))
        words = dict(word.split("=", 1) for word in line.split() if "=" in word)
        target = Target(words["grpc"], words["pages"].removeprefix("http://").rstrip("/"))
        agents = [FakeProcess(f"p{number}", service="honest") for number in range(AGENTS)]
        await asyncio.gather(*(agent.connect(target.address) for agent in agents))
        for agent in agents:
            stack.push_async_callback(agent.kill)
        Deadlock(agents[0], agents[1])
        channel = await stack.enter_async_context(target.channel())
        stub: Any = detector_pb2_grpc.DetectorServiceStub(channel)  # type: ignore[no-untyped-call]
        await stub.Ask(QUESTION)
        if name:
            _, line = await stack.enter_async_context(
                child("-m", "tests.bench.floods", "--flood", name, target.address, target.web)
            )
            assert line == "flooding\n"
        return await _asks(name, stub, seconds)


async def _asks(name: str, stub: Any, seconds: float) -> Waited:
    """One question after the other; the flood has half a second to begin."""
    await asyncio.sleep(min(0.5, seconds / 2))
    took: list[float] = []
    failed, holds, end = 0, set[str](), time.monotonic() + seconds
    while not took or time.monotonic() < end:
        begun = time.monotonic()
        try:
            answer = await stub.Ask(QUESTION, timeout=ASK_SECONDS_MAX)
            holds.add(snapshot_pb2.Holds.Name(answer.verdict.holds).removeprefix("HOLDS_"))
        except grpc.aio.AioRpcError:
            failed += 1
            await asyncio.sleep(0.05)
        took.append(time.monotonic() - begun)
    return Waited(name, tuple(took), failed, frozenset(holds))


async def measured(seconds: float, names: Iterable[str]) -> AsyncIterator[Waited]:
    """Each flood by itself."""
    for name in names:
        with tempfile.TemporaryDirectory() as data:
            yield await waited(name, seconds, Path(data))


async def _table(names: Iterable[str]) -> None:
    sys.stdout.write("| flood | asks | median (ms) | worst (ms) | not answered | answers |\n|---|--:|--:|--:|--:|---|\n")
    async for each in measured(SECONDS, names):
        sys.stdout.write(
            f"| {each.flood or 'none'} | {len(each.seconds)} | {1000 * each.median:.0f} | {1000 * each.worst:.0f} "
            f"| {each.failed} | {', '.join(sorted(each.holds))} |\n"
        )
        sys.stdout.flush()


async def _flood(name: str, target: Target) -> None:
    sys.stdout.write("flooding\n")
    sys.stdout.flush()
    await FLOODS[name](target)


def main() -> None:
    """The table; or, as a child, one flood."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--flood")
    parser.add_argument("--only", default="")
    parser.add_argument("where", nargs="*")
    given = parser.parse_args()
    if given.flood:
        asyncio.run(_flood(given.flood, Target(*given.where)))
    else:
        asyncio.run(_table([name for name in ("", *FLOODS) if given.only in name]))


if __name__ == "__main__":
    main()
