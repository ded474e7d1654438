"""The service for agents: leases, reconnections, and refusals with a clear status that affect no other agent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from stilltrue.model import CallNumber, PartyName, ProcessName, SnapshotId
from stilltrue.protocol.report import OutstandingCall, Report, ServedCall
from stilltrue.v1 import agent_pb2, detector_pb2, snapshot_pb2

TRUE, FALSE, UNDETERMINED = snapshot_pb2.HOLDS_TRUE, snapshot_pb2.HOLDS_FALSE, snapshot_pb2.HOLDS_UNDETERMINED


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(10):
        while not await condition():
            await asyncio.sleep(0.02)


async def _gone(detector: Any, name: str) -> bool:
    return name not in await detector.agents()


async def _there(detector: Any, name: str) -> bool:
    return name in await detector.agents()


async def _lost(detector: Any, name: str) -> bool:
    return bool((await detector.agents()).get(name) == detector_pb2.AGENT_STATE_LOST)


async def _missing(detector: Any, name: str) -> bool:
    return bool((await detector.agents())[name] == detector_pb2.AGENT_STATE_MISSING)


async def test_a_silent_member_is_missing_then_lost_then_forgotten(
    start_detector: Any, process: Any, deadlock: Any, tmp_path: Path
) -> None:
    a, b, mute = process("a"), process("b"), process("mute")
    mute.silent = True
    deadlock(a, b)
    async with start_detector(
        tmp_path, give_up_seconds=0.3, suspect_seconds=0.1, lease_seconds=0.8, forget_seconds=1.0
    ) as detector:
        await detector.join(a, b, mute)

        async def leases() -> None:
            while True:
                await asyncio.gather(*(one.say(lease=agent_pb2.Lease()) for one in (a, b)))
                await asyncio.sleep(0.1)

        living = asyncio.create_task(leases())
        async with asyncio.timeout(10):  # a look that comes too late is doubt, and doubt delays
            while (verdict := await detector.ask()).holds != TRUE:
                assert (verdict.holds, list(verdict.missing)) == (UNDETERMINED, ["mute"]), verdict
        assert list(verdict.missing) == ["mute"]
        assert (await detector.ask("termination")).holds in {FALSE, UNDETERMINED}
        assert (await detector.agents())["mute"] in {detector_pb2.AGENT_STATE_MISSING, detector_pb2.AGENT_STATE_LOST}
        await until(lambda: _lost(detector, "mute"))
        assert list((await detector.ask("termination")).missing) == ["mute"]
        await until(lambda: _gone(detector, "mute"))
        assert list((await detector.ask()).missing) == []
        mute.silent = False
        await mute.say(lease=agent_pb2.Lease())
        await until(lambda: _there(detector, "mute"))
        assert (await detector.ask()).snapshot.members == 3
        living.cancel()


async def test_without_any_report_there_is_no_answer(start_detector: Any, process: Any, tmp_path: Path) -> None:
    mute = process("mute")
    mute.silent = True
    async with start_detector(tmp_path, give_up_seconds=0.1, suspect_seconds=0.1) as detector:
        await detector.join(mute)
        verdict = await detector.ask()
        assert verdict.holds == UNDETERMINED
        assert list(verdict.decisive) == ["mute"]


async def test_a_goodbye_ends_a_membership_at_once(start_detector: Any, process: Any, tmp_path: Path) -> None:
    a, b = process("a"), process("b")
    async with start_detector(tmp_path) as detector:
        await detector.join(a, b)
        await b.say(goodbye=agent_pb2.Goodbye())
        await until(lambda: _gone(detector, "b"))
        assert (await detector.ask()).snapshot.members == 1


async def test_a_broken_stream_is_a_member_until_its_lease_ends_or_it_is_back(
    start_detector: Any, process: Any, tmp_path: Path
) -> None:
    a, b = process("a"), process("b")
    async with start_detector(tmp_path, give_up_seconds=0.3, suspect_seconds=0.1, lease_seconds=60) as detector:
        await detector.join(a, b)
        await b.kill()
        await until(lambda: _missing(detector, "b"))
        assert list((await detector.ask()).missing) == ["b"]
        await b.connect(detector.address)
        verdict = await detector.ask()
        assert (verdict.snapshot.members, list(verdict.missing)) == (2, [])


async def test_a_name_belongs_to_its_first_process_until_that_has_left(
    start_detector: Any, process: Any, tmp_path: Path
) -> None:
    first, second = process("a", incarnation=2), process("a", incarnation=1)
    async with start_detector(tmp_path) as detector:
        await detector.join(first)
        await second.connect(detector.address)
        async with asyncio.timeout(5):
            await second.ended.wait()  # the welcome may come before the refusal
        assert second.status is grpc.StatusCode.ALREADY_EXISTS
        assert "its own instance name" in second.details
        assert not first.ended.is_set()
        verdict = await detector.ask()
        assert (verdict.snapshot.members, list(verdict.missing)) == (1, [])


async def test_of_many_concurrent_streams_with_one_name_one_stays_and_the_others_are_refused(
    start_detector: Any, process: Any, tmp_path: Path
) -> None:
    same = [process("a", incarnation=1) for _ in range(40)]
    others = [process("a", incarnation=2 + number) for number in range(40)]
    async with start_detector(tmp_path) as detector:
        await detector.join(*same, *others)
        streams = [*same, *others]
        await until(lambda: asyncio.sleep(0, sum(not each.ended.is_set() for each in streams) == 1))
        assert {each.status for each in streams if each.ended.is_set()} == {grpc.StatusCode.ALREADY_EXISTS}
        verdict = await detector.ask()
        assert (verdict.snapshot.members, list(verdict.missing)) == (1, [])


MALFORMED: list[tuple[str, Callable[[Report], Any], str]] = [
    ("a foreign party", lambda r: replace(r, served=(ServedCall(party=PartyName("b/x"), method="/m"),)), "served.party"),
    ("another process", lambda r: replace(r, process=replace(r.process, instance=ProcessName("b"))), "process"),
    ("another incarnation", lambda r: replace(r, process=replace(r.process, incarnation=9)), "process"),
    ("a snapshot behind", lambda r: replace(r, after=r.snapshot), "snapshot"),
    ("a time of no calendar", lambda r: replace(r, cut_at=1e300), "cut_at"),
    ("a negative time", lambda r: replace(r, made=(OutstandingCall(number=CallNumber(1), method="/m", since=-1.0),)), "since"),
    ("a forged colour", lambda r: replace(r, snapshot=SnapshotId(10**12)), "too far ahead"),
]


@pytest.mark.parametrize(
    ("change", "field"), [(change, field) for _, change, field in MALFORMED], ids=[m[0] for m in MALFORMED]
)
async def test_a_malformed_report_is_refused_and_affects_no_other_agent(
    start_detector: Any, process: Any, deadlock: Any, tmp_path: Path, change: Callable[[Report], Any], field: str
) -> None:
    a, b, bad = process("a"), process("b"), process("bad")
    bad.change = change
    deadlock(a, b)
    async with start_detector(tmp_path, give_up_seconds=0.5, suspect_seconds=0.1) as detector:
        await detector.join(a, b, bad)
        verdict = await detector.ask()
        assert (verdict.holds, list(verdict.missing)) == (TRUE, ["bad"])
        async with asyncio.timeout(5):
            await bad.ended.wait()
        assert bad.status is grpc.StatusCode.INVALID_ARGUMENT
        assert field in bad.details
        refused = sum(
            [await detector.metric(f'stilltrue_reports_refused_total{{reason="{r}"}}') for r in ("malformed", "colour")]
        )
        assert refused == 1
        assert (await detector.ask()).holds == TRUE


async def test_an_oversized_report_is_refused_with_its_bound(start_detector: Any, process: Any, tmp_path: Path) -> None:
    a, big, huge = process("a"), process("big"), process("huge")
    big.change = lambda report: replace(report, facts={"x": "y" * 3000})
    huge.change = lambda report: replace(report, facts={"x": "y" * 100_000})
    async with start_detector(tmp_path, report_bytes_max=2048, give_up_seconds=0.5) as detector:
        await detector.join(a, big, huge)
        assert sorted((await detector.ask()).missing) == ["big", "huge"]
        async with asyncio.timeout(5):
            await asyncio.gather(big.ended.wait(), huge.ended.wait())
        assert big.status is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "--report-bytes-max" in big.details
        assert huge.status is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert (await detector.ask("termination")).snapshot.members == 3


async def test_garbage_and_a_missing_hello_are_refused(start_detector: Any, tmp_path: Path) -> None:
    async with start_detector(tmp_path) as detector:
        connect = detector.channel.stream_stream("/stilltrue.v1.AgentService/Connect")
        lease = agent_pb2.ConnectRequest(lease=agent_pb2.Lease()).SerializeToString()
        hello = agent_pb2.ConnectRequest(
            hello=agent_pb2.Hello(process=snapshot_pb2.ProcessId(instance="a/b"))
        ).SerializeToString()
        for message, words in ((b"\xff\xff\xff", "not a ConnectRequest"), (lease, "hello"), (hello, "hello.process.instance")):
            call = connect()
            await call.write(message)
            assert await call.code() is grpc.StatusCode.INVALID_ARGUMENT
            assert words in await call.details()


async def test_a_new_member_gets_no_marker_of_a_finished_snapshot(start_detector: Any, process: Any, tmp_path: Path) -> None:
    a, b = process("a"), process("b")
    async with start_detector(tmp_path) as detector:
        await detector.join(a)
        await detector.ask()
        await detector.join(b)
        assert (await detector.ask()).snapshot.members == 2
        assert len(b.marks) == 1


async def test_the_bound_on_members_refuses_the_next(start_detector: Any, process: Any, tmp_path: Path) -> None:
    a, b = process("a"), process("b")
    async with start_detector(tmp_path, members_max=1) as detector:
        await detector.join(a)
        await detector.join(b)
        async with asyncio.timeout(10):
            await b.ended.wait()  # the welcome may come before the refusal
        assert b.status is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert (await detector.ask()).snapshot.members == 1


async def test_messages_sent_at_once_by_a_fake_process_all_arrive(start_detector: Any, process: Any, tmp_path: Path) -> None:
    a = process("a")
    async with start_detector(tmp_path) as detector:
        await detector.join(a)
        await asyncio.gather(*(a.say(lease=agent_pb2.Lease(reports_dropped=number)) for number in range(300)))
        assert list((await detector.ask()).missing) == []
