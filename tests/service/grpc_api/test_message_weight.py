"""The decoded size of a message is estimated before decoding, and too large ones are refused."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.message import Message
from hypothesis import given, settings
from hypothesis import strategies as st

from detector.service.grpc_api import agent_service, report_reader
from detector.service.grpc_api.message_weight import FIELDS_PER_ENTRY, NUMBERS_PER_ENTRY, too_heavy, weight
from stilltrue.model import PartyName, WaitNumber
from stilltrue.protocol.report import LocalWait, PartyTarget, Report
from stilltrue.protocol.wire.report import report_from_wire
from stilltrue.runtime.membership.differences import Differences
from stilltrue.v1 import agent_pb2, snapshot_pb2

FALSE = snapshot_pb2.HOLDS_FALSE
MOST = 1000
SMALL = {
    "waits": b"\x5a\x00", "callers seen": b"\x4a\x00", "pools": b"\x52\x03\x0a\x01x", "labels": b"\x72\x00",
    "unknown fields": b"\xa2\x06\x00",
}  # fmt: skip


def ordinary(entries: int) -> snapshot_pb2.Report:
    """Calls made and served, and waits, with all that an agent says of them."""
    report = snapshot_pb2.Report(labels={"zone": "b"}, pools=[snapshot_pb2.Pool(name="pool", size=8)])
    for number in range(1, entries + 1):
        match number % 3:
            case 0:
                report.made.add(
                    number=number, method="/S/M", target="dns:///x", party=f"a/{number}", servers={"b": 1}, since=1.0
                )
            case 1:
                caller = snapshot_pb2.Caller(process="b", incarnation=1)
                report.served.add(party=f"a/{number}", method="/S/M", caller=caller, number=number, pool="pool", since=1.0)
            case _:
                target = snapshot_pb2.Target(party="a/x")
                report.waits.add(waiter=f"a/{number}", number=number, among=[target], needs=1, what="lock")
    return report


def test_a_wait_is_counted_with_its_names_and_targets() -> None:
    target = snapshot_pb2.Target(party="a/y")
    wait = snapshot_pb2.LocalWait(waiter="a/x", among=[target, target], what="a lock")
    report = snapshot_pb2.Report(waits=[wait, wait])
    assert weight(report.SerializeToString(), snapshot_pb2.Report, MOST) == 2 * (1 + 1 + 2 * 2 + 1)


def test_numbers_count_for_less_whether_they_are_packed_or_not() -> None:
    seen = snapshot_pb2.Seen(plain=range(1, 8 * NUMBERS_PER_ENTRY + 1))
    assert weight(seen.SerializeToString(), snapshot_pb2.Seen, MOST) == 1 + 8
    assert weight(b"\x20\x01" * 8 * NUMBERS_PER_ENTRY, snapshot_pb2.Seen, MOST) == 8
    large = snapshot_pb2.Seen(plain=[2**60] * 8 * NUMBERS_PER_ENTRY)
    assert weight(large.SerializeToString(), snapshot_pb2.Seen, MOST) == 1 + 8


@pytest.mark.parametrize("small", SMALL.values(), ids=SMALL)
def test_very_many_small_fields_are_too_heavy_anywhere(small: bytes) -> None:
    report = small * MOST * 2
    assert too_heavy(report, snapshot_pb2.Report, MOST)
    request = agent_pb2.ConnectRequest(report=snapshot_pb2.Report(process=snapshot_pb2.ProcessId(instance="a")))
    whole = request.SerializeToString()
    inside = b"\x12" + _length(len(whole[2:]) + len(report)) + whole[2:] + report
    assert too_heavy(inside, agent_pb2.ConnectRequest, MOST)
    assert not too_heavy(small * (MOST // 10), snapshot_pb2.Report, MOST)


def test_targets_of_one_wait_and_numbers_of_one_caller_count() -> None:
    wait = snapshot_pb2.LocalWait(waiter="a/x", among=[snapshot_pb2.Target()] * (2 * MOST))
    assert too_heavy(snapshot_pb2.Report(waits=[wait]).SerializeToString(), snapshot_pb2.Report, MOST)
    seen = snapshot_pb2.Seen(plain=range(2 * NUMBERS_PER_ENTRY * MOST))
    assert too_heavy(snapshot_pb2.Report(seen=[seen]).SerializeToString(), snapshot_pb2.Report, MOST)


def test_an_ordinary_report_is_never_too_heavy() -> None:
    for entries in (10, 1000, 20_000):
        assert not too_heavy(ordinary(entries).SerializeToString(), snapshot_pb2.Report, FIELDS_PER_ENTRY * entries)


def test_the_count_ends_as_soon_as_there_are_too_many() -> None:
    assert weight(b"\x5a\x00" * 100_000, snapshot_pb2.Report, MOST) == MOST + 1


@settings(deadline=None)
@given(st.binary(max_size=200), st.sampled_from([snapshot_pb2.Report, agent_pb2.ConnectRequest]))
def test_invalid_bytes_are_weighed_up_to_the_error(data: bytes, message: type[Message]) -> None:
    assert 0 <= weight(data, message, MOST) <= MOST


def _length(number: int) -> bytes:
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])


@pytest.mark.parametrize("told_as", ["report", "difference"])
async def test_a_report_of_too_many_small_parts_is_refused_with_the_bound(
    told_as: str, start_detector: Any, process: Any, tmp_path: Path
) -> None:
    a, big = process("a"), process("big")
    big.differences = Differences() if told_as == "difference" else None
    big.change = lambda report: replace(report, labels={str(number): "" for number in range(2 * FIELDS_PER_ENTRY * 100)})
    async with start_detector(tmp_path, report_entries_max=100) as detector:
        await detector.join(a, big)
        assert list((await detector.ask()).missing) == ["big"]
        async with asyncio.timeout(20):
            await big.ended.wait()
        assert (big.status, "--report-entries-max" in big.details) == (grpc.StatusCode.RESOURCE_EXHAUSTED, True)


@pytest.mark.parametrize(
    "said",
    [
        {"looked": agent_pb2.Looked(parties=[agent_pb2.PartyLook()] * 2000)},
        {"difference": agent_pb2.Difference(snapshot=1, pieces=[agent_pb2.Piece()] * 2000)},
        {"stacks_found": agent_pb2.StacksFound(parties=[agent_pb2.StandingParty()] * 2000)},
        {"report": snapshot_pb2.Report(pools=[snapshot_pb2.Pool()] * 2000)},
    ],
    ids=lambda said: next(iter(said)),
)
async def test_any_message_that_is_too_heavy_is_refused_with_the_bound(
    said: dict[str, Message], start_detector: Any, process: Any, tmp_path: Path
) -> None:
    big = process("big")
    async with start_detector(tmp_path, report_entries_max=100) as detector:
        await detector.join(big)
        await big.say(**said)
        async with asyncio.timeout(20):
            await big.ended.wait()
        assert (big.status, "--report-entries-max" in big.details) == (grpc.StatusCode.RESOURCE_EXHAUSTED, True)


async def test_while_a_large_report_is_decoded_probes_and_other_agents_are_answered(
    start_detector: Any, process: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is decoded on a thread; before, 50,000 waits held everybody up for half a second."""
    begun, go_on = threading.Event(), threading.Event()

    def slow(message: snapshot_pb2.Report) -> Report:
        if message.process.instance == "large":
            begun.set()
            assert go_on.wait(60)
        return report_from_wire(message)

    monkeypatch.setattr(report_reader, "report_from_wire", slow)
    monkeypatch.setattr(agent_service, "THREAD_BYTES_MIN", 1000)
    a, large = process("a"), process("large")
    among = (PartyTarget(party=PartyName("a/x")),)
    waits = tuple(
        LocalWait(waiter=PartyName(f"large/{number}"), number=WaitNumber(number), among=among, needs=1)
        for number in range(1, 101)
    )
    large.change = lambda report: replace(report, waits=waits)
    async with start_detector(tmp_path, lease_seconds=60) as detector:
        await detector.join(a, large)
        asked = asyncio.create_task(detector.ask())
        try:
            assert await asyncio.to_thread(begun.wait, 60)
            status, _, _ = await detector.fetch("/healthz")
            assert status == 200
            late = process("late")
            await detector.join(late)
            assert late.welcomed.is_set()
        finally:
            go_on.set()
        verdict = await asked
        assert (verdict.holds, list(verdict.missing)) == (FALSE, [])
