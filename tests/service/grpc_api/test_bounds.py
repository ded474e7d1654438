"""Bounds: no agent and no client, however it behaves, takes the service away from others."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest

from detector.predicates.deadlock import Deadlock
from detector.service.detection.membership.colour_budget import AHEAD_MAX, ColourBudget, ColourRefusedError
from detector.service.grpc_api import report_reader
from detector.service.grpc_api.agent_service import HELLO_BYTES_MAX
from detector.service.grpc_api.agent_stream import MESSAGES_BURST, MESSAGES_PER_SECOND, Pace
from detector.service.settings import flag
from stilltrue.model import PartyName
from stilltrue.protocol.report import Pool, Report, ServedCall
from stilltrue.protocol.wire.report import report_from_wire, report_to_wire
from stilltrue.v1 import agent_pb2, detector_pb2, detector_pb2_grpc, snapshot_pb2

TRUE, FALSE, UNDETERMINED = snapshot_pb2.HOLDS_TRUE, snapshot_pb2.HOLDS_FALSE, snapshot_pb2.HOLDS_UNDETERMINED


def test_agents_advance_the_snapshot_numbers_at_a_limited_rate() -> None:
    budget = ColourBudget(now=0.0)
    budget.spend(AHEAD_MAX, 0, 0.0)
    with pytest.raises(ColourRefusedError, match="too far ahead"):
        budget.spend(AHEAD_MAX + 3000, AHEAD_MAX, 1.0)
    budget.spend(AHEAD_MAX, AHEAD_MAX, 1.0)
    budget.spend(AHEAD_MAX + 1000, AHEAD_MAX, 1.5)
    with pytest.raises(ColourRefusedError):
        budget.spend(AHEAD_MAX + 5000, AHEAD_MAX + 1000, 1.5)


def test_many_allowed_jumps_do_not_exhaust_the_snapshot_numbers() -> None:
    budget, newest = ColourBudget(now=0.0), 0
    for second in range(1000):
        step = newest + AHEAD_MAX // 2
        try:
            budget.spend(step, newest, float(second))
        except ColourRefusedError:
            continue
        newest = step
    assert newest <= 2 * AHEAD_MAX


async def test_one_agent_cannot_exhaust_the_snapshot_numbers(start_detector: Any, process: Any, tmp_path: Path) -> None:
    a, forger = process("a"), process("forger")
    async with start_detector(tmp_path) as detector:
        await detector.join(a, forger)
        for step in range(1, 4):
            await forger.say(lease=agent_pb2.Lease(colour=step * AHEAD_MAX // 2))
        async with asyncio.timeout(5):
            await forger.ended.wait()
        assert forger.status is grpc.StatusCode.INVALID_ARGUMENT
        verdict = await detector.ask()
        assert verdict.snapshot.id < 2 * AHEAD_MAX
        assert list(verdict.missing) == ["forger"]


async def test_a_hello_is_small(start_detector: Any, process: Any, tmp_path: Path) -> None:
    a, big = process("a"), process("big", labels={"x": "y" * HELLO_BYTES_MAX})
    async with start_detector(tmp_path) as detector:
        await detector.join(a, big)
        async with asyncio.timeout(5):
            await big.ended.wait()
        assert (big.status, "fewer or shorter labels" in big.details) == (grpc.StatusCode.RESOURCE_EXHAUSTED, True)
        assert list(await detector.agents()) == ["a"]


async def test_a_report_has_a_bounded_number_of_entries(start_detector: Any, process: Any, tmp_path: Path) -> None:
    a, big = process("a"), process("big")
    many = tuple(ServedCall(party=PartyName(f"big/{n}"), method="/m") for n in range(11))
    big.change = lambda report: replace(report, served=many)
    async with start_detector(tmp_path, report_entries_max=10) as detector:
        await detector.join(a, big)
        assert list((await detector.ask()).missing) == ["big"]
        async with asyncio.timeout(5):
            await big.ended.wait()
        assert (big.status, "--report-entries-max" in big.details) == (grpc.StatusCode.RESOURCE_EXHAUSTED, True)


@pytest.mark.parametrize("bound", [{"reports_entries_max": 40}, {"reports_bytes_max": 4000}])
async def test_many_agents_at_their_bounds_leave_the_others_their_share(
    bound: dict[str, int], start_detector: Any, process: Any, deadlock: Any, tmp_path: Path
) -> None:
    """Each of them says as much as one may; beyond a bound on all, those with more than their share are refused."""
    a, b, hogs = process("a"), process("b"), [process(f"hog{number}") for number in range(4)]
    deadlock(a, b)
    for hog in hogs:
        many = tuple(ServedCall(party=PartyName(f"{hog.id.instance}/{'x' * 100}{n}"), method="/m") for n in range(20))
        hog.change = lambda report, many=many: replace(report, served=many)
    async with start_detector(tmp_path, report_entries_max=20, **bound) as detector:
        await detector.join(*hogs)
        await detector.join(a, b)
        async with asyncio.timeout(10):
            while sum(hog.ended.is_set() for hog in hogs) < 2:
                await detector.ask()
        refused = [hog for hog in hogs if hog.ended.is_set()]
        assert {hog.status for hog in refused} == {grpc.StatusCode.RESOURCE_EXHAUSTED}
        assert all(flag(next(iter(bound))) in hog.details for hog in refused)
        async with asyncio.timeout(10):
            while (await detector.ask()).holds != TRUE:
                await asyncio.sleep(0.05)
        assert not a.ended.is_set()
        assert not b.ended.is_set()


async def test_a_report_that_is_refused_is_not_decoded(
    start_detector: Any, process: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded: list[Any] = []
    sent: list[Report] = []
    decode = report_from_wire

    def counted(message: Any) -> Report:
        decoded.append(message)
        return decode(message)

    def remembered(report: Report) -> Report:
        sent.append(report)
        return report

    monkeypatch.setattr(report_reader, "report_from_wire", counted)
    a = process("a")
    a.change = remembered
    async with start_detector(tmp_path) as detector:
        await detector.join(a)
        await detector.ask()
        assert len(decoded) == 1
        for _ in range(5):
            await a.say(report=report_to_wire(sent[0]))
        async with asyncio.timeout(10):
            while await detector.metric('stilltrue_reports_refused_total{reason="late"}') < 5:
                await asyncio.sleep(0.01)
        assert len(decoded) == 1
        assert (await detector.ask()).holds == FALSE


async def test_a_flood_of_asks_shares_few_snapshots_and_delays_no_honest_ask(
    start_detector: Any, process: Any, tmp_path: Path
) -> None:
    class Slow:
        name = "deadlock"
        treats_missing = True

        def evaluate(self, snapshot: Any) -> Any:
            time.sleep(0.02)
            return Deadlock().evaluate(snapshot)

    a = process("a")
    async with start_detector(tmp_path, predicates=[Slow()], asks_max=5000) as detector:
        await detector.join(a)

        async def asker() -> list[int]:
            return [(await detector.ask()).snapshot.id for _ in range(4)]

        flood = [asyncio.create_task(asker()) for _ in range(150)]
        await asyncio.wait(flood, timeout=0.5)
        begun = asyncio.get_running_loop().time()
        await detector.ask()
        assert asyncio.get_running_loop().time() - begun < 10.0
        answered = [number for numbers in await asyncio.gather(*flood) for number in numbers]
        assert (len(answered), len(set(answered)) < 300) == (600, True)


async def test_one_connection_has_its_share_of_asks_and_watches(start_detector: Any, process: Any, tmp_path: Path) -> None:
    mute = process("mute")
    mute.silent = True
    async with start_detector(
        tmp_path, asks_per_connection_max=2, watchers_per_connection_max=1, give_up_seconds=0.5
    ) as detector:
        await detector.join(mute)
        asks = await asyncio.gather(*(detector.ask() for _ in range(3)), return_exceptions=True)
        refused = [ask for ask in asks if isinstance(ask, grpc.aio.AioRpcError)]
        assert [error.code() for error in refused] == [grpc.StatusCode.RESOURCE_EXHAUSTED]
        assert "--asks-per-connection-max" in str(refused[0].details())
        watches = [detector.stub.Watch(detector_pb2.WatchRequest(predicate="deadlock")) for _ in range(2)]
        await watches[0].read()
        with pytest.raises(grpc.aio.AioRpcError, match="--watchers-per-connection-max"):
            await watches[1].read()
        async with grpc.aio.insecure_channel(detector.address, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
            other = detector_pb2_grpc.DetectorServiceStub(channel)  # type: ignore[no-untyped-call]  # generated code
            assert (await other.Ask(detector_pb2.AskRequest(predicate="deadlock"))).verdict.holds == UNDETERMINED


async def test_a_large_request_is_refused_with_its_bound(start_detector: Any, tmp_path: Path) -> None:
    async with start_detector(tmp_path) as detector:
        with pytest.raises(grpc.aio.AioRpcError, match="a request is at most 262144 bytes"):
            await detector.ask("x" * (300 * 1024))


@pytest.mark.parametrize("number", [2**63, 2**64 - 1, 2**53 + 1])
async def test_a_snapshot_without_a_valid_number_is_refused(start_detector: Any, tmp_path: Path, number: int) -> None:
    async with start_detector(tmp_path) as detector:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await detector.stub.GetSnapshot(detector_pb2.GetSnapshotRequest(id=number))
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_lease_with_nonsense_is_refused(start_detector: Any, process: Any, tmp_path: Path) -> None:
    a = process("a")
    async with start_detector(tmp_path) as detector:
        await detector.join(a)
        await a.say(lease=agent_pb2.Lease(reports_dropped=2**64 - 1))
        async with asyncio.timeout(5):
            await a.ended.wait()
        assert (a.status, "lease.reports_dropped" in a.details) == (grpc.StatusCode.INVALID_ARGUMENT, True)


@pytest.mark.parametrize("fact", [float("nan"), float("inf"), -float("inf")])
async def test_a_fact_that_is_not_a_number_breaks_no_document(
    fact: float, start_detector: Any, process: Any, tmp_path: Path
) -> None:
    a = process("a")
    a.change = lambda report: replace(report, facts={"load": fact})
    async with start_detector(tmp_path) as detector:
        await detector.join(a)
        assert (await detector.ask("token-lost")).holds == UNDETERMINED
        answer = await detector.stub.GetSnapshot(detector_pb2.GetSnapshotRequest())

        def refused(constant: str) -> None:
            raise ValueError(constant)

        document = json.loads(answer.document_json, parse_constant=refused)
        assert document["processes"]["a"]["facts"] == {"load": str(fact)}


async def test_a_number_too_large_for_a_column_costs_only_its_own_row(
    start_detector: Any, process: Any, tmp_path: Path
) -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    a, odd = process("a"), process("odd")
    odd.change = lambda report: replace(report, pools=(Pool(name="p", size=2**32 - 1),))
    async with start_detector(tmp_path) as detector:
        await detector.join(a, odd)
        assert (await detector.ask()).holds == FALSE
        async with asyncio.timeout(20):  # the alert about the archive looks there
            while not await detector.metric("stilltrue_archive_dropped_total"):
                await asyncio.sleep(0.02)
    (file,) = (tmp_path / "archive" / "reports").rglob("*.parquet")
    assert pq.read_table(file)["process"].to_pylist() == ["a"]
    assert list((tmp_path / "archive" / "snapshots").rglob("*.parquet"))


def test_a_stream_is_read_at_a_limited_rate_after_a_burst() -> None:
    pace = Pace(0.0)
    assert [pace.pause(0.0) for _ in range(MESSAGES_BURST)] == [pytest.approx(0.0)] * MESSAGES_BURST
    assert sum(pace.pause(now) == 0.0 for now in [1.0 for _ in range(2 * int(MESSAGES_PER_SECOND))]) <= MESSAGES_PER_SECOND
    assert pace.pause(1.0) > 0.5
    assert pace.pause(3600.0) == 0.0


async def test_messages_that_an_agent_sends_too_fast_wait_and_arrive(start_detector: Any, process: Any, tmp_path: Path) -> None:
    flood, a = process("flood"), process("a")
    async with start_detector(tmp_path, lease_seconds=60) as detector:
        await detector.join(flood, a)
        for _ in range(MESSAGES_BURST + 100):
            await flood.say(lease=agent_pb2.Lease())
        assert list((await detector.ask()).missing) == []


async def test_a_question_beyond_the_bound_is_refused_after_a_delay(
    start_detector: Any, process: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("detector.service.grpc_api.detector_service.REFUSED_SECONDS", 600.0)
    mute = process("mute")
    mute.silent = True
    async with start_detector(tmp_path, asks_per_connection_max=1, give_up_seconds=0.5) as detector:
        await detector.join(mute)
        asks = [asyncio.create_task(detector.ask()) for _ in range(2)]
        done, waiting = await asyncio.wait(asks, return_when=asyncio.FIRST_COMPLETED)
        assert [ask.result().holds for ask in done] == [UNDETERMINED]
        assert len(waiting) == 1
        waiting.pop().cancel()


async def test_a_connection_with_few_questions_may_ask_while_too_many_wait(
    start_detector: Any, process: Any, tmp_path: Path
) -> None:
    mute = process("mute")
    mute.silent = True
    async with start_detector(tmp_path, asks_max=4, give_up_seconds=2.0) as detector:
        await detector.join(mute)
        flood = [asyncio.create_task(detector.ask()) for _ in range(5)]
        done, _ = await asyncio.wait(flood, return_when=asyncio.FIRST_COMPLETED)
        refused = done.pop().exception()
        assert isinstance(refused, grpc.aio.AioRpcError)
        assert "--asks-max" in str(refused.details())
        async with grpc.aio.insecure_channel(detector.address, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
            other = detector_pb2_grpc.DetectorServiceStub(channel)  # type: ignore[no-untyped-call]  # generated code
            assert (await other.Ask(detector_pb2.AskRequest(predicate="deadlock"))).verdict.holds == UNDETERMINED
        await asyncio.gather(*flood, return_exceptions=True)
