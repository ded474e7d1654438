"""Reports restored from differences equal full ones, and older agents work beside new ones."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import grpc
import pytest

from detector.service.grpc_api.report_reader import ReportReader
from stilltrue.protocol.wire.report import report_from_wire
from stilltrue.protocol.wire.values import MalformedError
from stilltrue.runtime.membership.differences import WHOLE_EVERY, Differences
from stilltrue.v1 import agent_pb2, detector_pb2, snapshot_pb2
from tests.service.grpc_api.test_report_reader import message

TRUE, FALSE, UNDETERMINED = snapshot_pb2.HOLDS_TRUE, snapshot_pb2.HOLDS_FALSE, snapshot_pb2.HOLDS_UNDETERMINED
OWN = snapshot_pb2.ProcessId(service="shop", instance="a", incarnation=7).SerializeToString()
BYTES_MAX = 1_000_000


def changed(report: snapshot_pb2.Report, rng: random.Random) -> snapshot_pb2.Report:
    """Some calls have ended, and others have begun."""
    for entries in (report.made, report.waits):
        for at in sorted(rng.sample(range(len(entries)), min(len(entries), rng.randrange(3))), reverse=True):
            del entries[at]
    for _ in range(rng.randrange(3)):
        number = report.next_number
        report.next_number += 1
        report.made.insert(rng.randint(0, len(report.made)), snapshot_pb2.CallMade(number=number, party=f"a/{number}"))
        report.waits.add(waiter=f"a/{number}", number=number, among=[snapshot_pb2.Target(call=number)], needs=1)
    return report


@pytest.mark.parametrize("seed", range(20))
def test_a_report_restored_from_differences_is_exact_even_after_refused_ones(seed: int) -> None:
    rng, differences, reader = random.Random(seed), Differences(), ReportReader(OWN)
    whole = message(1, waits=rng.randrange(12))
    for snapshot in range(1, 2 * WHOLE_EVERY):
        if rng.random() < 0.7:
            whole = changed(whole, rng)
        whole.snapshot, whole.after, whole.cut_at = snapshot, snapshot - 1, 10.0 + snapshot
        copy = snapshot_pb2.Report()
        copy.CopyFrom(whole)
        request = agent_pb2.ConnectRequest.FromString(differences.request(copy).SerializeToString())
        found = reader.restored(request.difference, BYTES_MAX)
        if rng.random() < 0.2:
            continue  # too late: it is not decoded, and yet the next one builds upon it
        report = reader.again(found)
        if report is None:
            decoded = found.message()
            assert decoded is not None
            report = reader.decoded(decoded, found)
        assert report == report_from_wire(whole)


def test_an_unchanged_report_costs_a_few_bytes_and_another_call_only_its_own() -> None:
    differences = Differences()
    sizes = [differences.request(message(at, at - 1, waits=waits)).ByteSize() for at, waits in ((1, 100), (2, 100), (3, 101))]
    assert sizes[0] > 3_000
    assert sizes[1] < 30
    assert sizes[2] < 200


def test_a_full_report_is_sent_occasionally() -> None:
    differences = Differences()
    bases = [differences.request(message(at, at - 1)).difference.base for at in range(1, 2 * WHOLE_EVERY + 1)]
    assert [at for at, base in enumerate(bases) if not base] == [0, WHOLE_EVERY]


@pytest.mark.parametrize(
    "second",
    [
        agent_pb2.Difference(base=7, snapshot=8),
        agent_pb2.Difference(base=1, snapshot=2, pieces=[agent_pb2.Piece(first=2**31, count=2**31)]),
        agent_pb2.Difference(base=1, snapshot=2, pieces=[agent_pb2.Piece(count=9)] * (BYTES_MAX // 100)),
    ],
)
def test_a_difference_that_fits_no_report_or_exceeds_the_bound_is_refused(second: agent_pb2.Difference) -> None:
    reader = ReportReader(OWN)
    reader.restored(Differences().request(message(1)).difference, BYTES_MAX)
    with pytest.raises(MalformedError):
        reader.restored(second, BYTES_MAX)


@pytest.mark.parametrize("body", [b"\xff" * 20, b"\x0a\xff\x01a", b"\x0b", b"\x09abc"])
def test_a_base_that_is_not_a_sequence_of_fields_is_refused(body: bytes) -> None:
    reader = ReportReader(OWN)
    reader.restored(agent_pb2.Difference(snapshot=1, pieces=[agent_pb2.Piece(fields=body)]), BYTES_MAX)
    with pytest.raises(MalformedError):
        reader.restored(agent_pb2.Difference(base=1, snapshot=2, pieces=[agent_pb2.Piece(count=1)]), BYTES_MAX)


async def test_old_agents_work_beside_new_ones(start_detector: Any, process: Any, deadlock: Any, tmp_path: Path) -> None:
    old, new = process("a"), process("b")
    new.differences = Differences()
    async with start_detector(tmp_path, look_again_seconds_min=0) as detector:
        await detector.join(old, new)
        for _ in range(3):
            assert (await detector.ask()).holds == FALSE
        stuck = deadlock(old, new)
        while (verdict := await detector.ask()).holds != TRUE:
            assert verdict.holds in {FALSE, UNDETERMINED}
        assert list(verdict.core) == stuck.core
        stuck.cure()
        assert (await detector.ask()).holds == FALSE


async def test_a_stream_that_refers_to_an_unknown_report_is_ended(start_detector: Any, process: Any, tmp_path: Path) -> None:
    a = process("a")
    async with start_detector(tmp_path) as detector:
        await detector.join(a)
        await a.say(difference=agent_pb2.Difference(base=4, snapshot=5, after=4))
        await a.ended.wait()
        assert a.status is grpc.StatusCode.INVALID_ARGUMENT
        assert "difference.base" in a.details


async def test_a_heading_among_the_fields_is_refused(start_detector: Any, process: Any, tmp_path: Path) -> None:
    a = process("a")
    async with start_detector(tmp_path, period_seconds=0.1) as detector:
        a.silent = True
        await detector.join(a)
        heading = snapshot_pb2.Report(snapshot=2**40, cut_at=1.0).SerializeToString()
        while not a.ended.is_set():
            newest = 1 + max((one.ref.id for one in await snapshots(detector)), default=0)
            pieces = [agent_pb2.Piece(fields=heading)]
            await a.say(difference=agent_pb2.Difference(snapshot=newest, after=newest - 1, cut_at=1.0, pieces=pieces))
        assert a.status is grpc.StatusCode.INVALID_ARGUMENT
        assert "heading" in a.details


async def snapshots(detector: Any) -> Any:
    return (await detector.stub.ListSnapshots(detector_pb2.ListSnapshotsRequest(limit=1))).snapshots
