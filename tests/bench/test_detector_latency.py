"""From the last event of a deadlock to TRUE, with 100 agents on one machine: behaviour is asserted, the times are printed."""

from __future__ import annotations

import asyncio
import statistics
import time
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

from stilltrue.v1 import detector_pb2, snapshot_pb2

AGENTS = 100
ROUNDS = 15


def load(path: Path) -> ModuleType:
    spec = spec_from_file_location("stilltrue_service_fakes", path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


async def test_last_event_to_true(tmp_path: Path) -> None:
    fakes = load(Path(__file__).parents[1] / "service" / "conftest.py")
    processes = [fakes.FakeProcess(f"p{index:03}", service="s") for index in range(AGENTS)]
    async with fakes.detecting(tmp_path) as detector:
        await detector.join(*processes)
        asked, wished = [], []
        for round in range(2 * ROUNDS):
            pair = processes[2 * round % AGENTS], processes[(2 * round + 1) % AGENTS]
            stuck = fakes.Deadlock(*pair)
            begun = time.perf_counter()
            if round % 2:
                answer = await detector.stub.Ask(detector_pb2.AskRequest(predicate="deadlock"))
                verdict = answer.verdict
                asked.append(time.perf_counter() - begun)
            else:
                watch = detector.stub.Watch(detector_pb2.WatchRequest(predicate="deadlock"))
                await pair[0].say(wish={"reason": "blocked"})
                async for news in watch:
                    verdict = news.verdict
                    if verdict.holds == snapshot_pb2.HOLDS_TRUE:
                        break
                wished.append(time.perf_counter() - begun)
                watch.cancel()
            assert verdict.holds == snapshot_pb2.HOLDS_TRUE
            assert list(verdict.core) == stuck.core
            assert verdict.snapshot.members == AGENTS
            stuck.cure()
            stuck.b.gives_up(stuck.from_b)
            stuck.b.recorder.replied(stuck.of_b)
            free = await detector.stub.Ask(detector_pb2.AskRequest(predicate="deadlock"))
            assert free.verdict.holds == snapshot_pb2.HOLDS_FALSE
            await asyncio.sleep(0.11)
    for name, times in (("ask", asked), ("wish", wished)):
        times.sort()
        print(f"\n{AGENTS} agents, last event to TRUE by {name}: p50 {statistics.median(times) * 1000:.1f} ms, max {times[-1] * 1000:.1f} ms")
