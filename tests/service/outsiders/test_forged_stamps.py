"""Forged stamps without keys: they delay an answer, but neither cause nor hide one for long."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from stilltrue.model import CallNumber, ProcessName, SnapshotId
from stilltrue.protocol.books.ledger import ServerCall
from stilltrue.protocol.stamp import NUMBER_MAX, Stamp
from stilltrue.protocol.wire.report import report_to_wire
from stilltrue.v1 import snapshot_pb2

TRUE, FALSE, UNDETERMINED = snapshot_pb2.HOLDS_TRUE, snapshot_pb2.HOLDS_FALSE, snapshot_pb2.HOLDS_UNDETERMINED


async def forge(
    server: Any, name: str, *, number: int = 1, colour: int = 0, floor: int = 0, method: str = "/s/Do"
) -> ServerCall:
    """A stranger calls ``server`` with a stamp of ``name``'s, and its handler starts."""
    stamp = Stamp(ProcessName(name), 1, CallNumber(number), SnapshotId(colour), CallNumber(floor))
    served, report = server.recorder.arrived(stamp, method=method, now=time.time(), pool="pool")
    if report is not None:
        await server.say(report=report_to_wire(report))
    server.recorder.started(served)
    forged: ServerCall = served
    return forged


async def test_two_hundred_forged_colours_silence_no_member(start_detector: Any, process: Any, tmp_path: Path) -> None:
    a, b = process("a"), process("b")
    async with start_detector(tmp_path, lease_seconds=60) as detector:
        await detector.join(a, b)
        for _ in range(200):
            a.recorder.replied(await forge(a, "nobody", colour=a.recorder.colour + 10**9 - 1))
        a.call(b, "/s/Do")  # and so the colour travels on
        for _ in range(3):
            verdict = await detector.ask()
            assert (verdict.holds, list(verdict.missing)) == (FALSE, [])
        await a.kill()
        await detector.join(a)  # its colour is accepted in a hello as well
        assert a.status is None
        assert (await detector.ask()).snapshot.id < NUMBER_MAX // 10**6


@pytest.mark.parametrize("before", [True, False], ids=["seen before", "not seen before"])
async def test_a_forged_call_at_a_third_server_hides_no_deadlock(
    before: bool, start_detector: Any, process: Any, deadlock: Any, tmp_path: Path
) -> None:
    """Nor do mirrored requests, which bear a stamp that was sent once to two servers."""
    a, b, c = process("a"), process("b"), process("c")
    async with start_detector(tmp_path) as detector:
        await detector.join(a, b, c)
        stuck = deadlock(a, b)
        if before:
            assert (await detector.ask()).holds == TRUE
        forged = await forge(c, "a", number=stuck.from_a.number, method="/s/Second")
        assert (await detector.ask()).holds == UNDETERMINED
        assert [incident.HasField("closed") for incident in await detector.incidents()] == [False] * before
        c.recorder.replied(forged)
        assert (await detector.ask()).holds != FALSE


async def test_a_forged_number_costs_only_one_servers_report(
    start_detector: Any, process: Any, deadlock: Any, tmp_path: Path
) -> None:
    a, b, c = process("a"), process("b"), process("c")
    async with start_detector(tmp_path) as detector:
        await detector.join(a, b, c)
        stuck = deadlock(a, b)
        await forge(c, "a", number=9_999_999)
        verdict = await detector.ask()
        assert (verdict.holds, list(verdict.core), list(verdict.missing)) == (TRUE, stuck.core, ["c"])
        assert await detector.metric('stilltrue_reports_refused_total{reason="contradictory"}') == 1


async def test_a_forged_floor_causes_no_true(start_detector: Any, process: Any, tmp_path: Path) -> None:
    """The server would forget its answer, and the caller would seem to wait for the parties that are busy there."""
    a, b = process("a"), process("b")
    async with start_detector(tmp_path) as detector:
        await detector.join(a, b)
        for one in (a, b):
            one.recorder.pool_opened("pool", 1)
        _, in_a = a.call(a, "/s/X")
        _, served = a.call(b, "/s/Second", by=in_a.party)
        b.recorder.replied(served)  # the reply is on its way
        _, in_b = b.call(b, "/s/Y")
        b.call(a, "/s/Second", by=in_b.party, starts=False)
        await forge(b, "a", number=3, floor=9_999_999)
        for _ in range(3):
            assert (await detector.ask()).holds != TRUE
