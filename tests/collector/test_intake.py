"""A report in a collector: for which snapshots it is written, and what its digest contains."""

from __future__ import annotations

import pytest

from detector.collector.intake import Intake, Taken
from detector.service.detection.membership.members import unknowns
from detector.service.grpc_api.report_checks import RefusedError
from stilltrue.model import ProcessId, ProcessName
from stilltrue.protocol.report import Report
from stilltrue.protocol.wire.report import report_from_wire, report_to_wire
from stilltrue.protocol.wire.values import MalformedError, process_to_wire
from stilltrue.v1 import agent_pb2 as pb
from stilltrue.v1 import snapshot_pb2 as snapshot_pb
from tests.synthetic.random_snapshots import WorldShape, random_snapshots


def _intake(**bounds: int) -> Intake:
    return Intake(**{"report_bytes_max": 2**20, "report_entries_max": 1000, "pending_snapshots_max": 4} | bounds)


def _taken(intake: Intake, report: Report, **heading: int) -> Taken:
    message = report_to_wire(report)
    for name, value in heading.items():
        setattr(message, name, value)
    taken = intake.report(pb.ConnectRequest(report=message).SerializeToString())
    assert taken is not None
    return taken


def _digest(taken: Taken) -> Report:
    return report_from_wire(pb.ConnectRequest.FromString(taken.digest).report)


REPORTS = [
    report
    for made in random_snapshots(7, 20, WorldShape(processes=4, calls=8))
    for report in made.assembled.reports.values()
]  # fmt: skip


def test_a_digest_has_the_data_for_coverage_and_the_parties_names() -> None:
    said = set()
    for report in REPORTS:
        digest = _digest(_taken(_intake(), report))
        assert (digest.process, digest.cut_at) == (report.process, report.cut_at)
        assert tuple(unknowns(digest)) == tuple(unknowns(report))
        assert _parties(digest) == _parties(report)
        assert not digest.made
        assert not digest.seen
        said |= {text.rstrip("0123456789") for text in unknowns(report)}
    assert said


def _parties(report: Report) -> set[str]:
    return {*(served.party for served in report.served), *(wait.waiter for wait in report.waits)}


def test_an_unchanged_report_has_the_same_digest_with_a_new_heading() -> None:
    for report in REPORTS[:10]:
        intake = _intake()
        first = _taken(intake, report, snapshot=5, after=4)
        again = _taken(intake, report, snapshot=6, after=5)
        afresh = _taken(_intake(), report, snapshot=6, after=5)
        assert again == afresh
        assert first != again


@pytest.mark.parametrize(("after", "snapshot", "kept"), [(4, 5, (5,)), (3, 5, (4, 5)), (0, 9, (6, 7, 8, 9)), (0, 2, (1, 2))])
def test_a_report_is_kept_for_the_snapshots_that_may_wait_for_it(after: int, snapshot: int, kept: tuple[int, ...]) -> None:
    taken = _taken(_intake(), REPORTS[0], after=after, snapshot=snapshot)
    digest = _digest(taken)
    assert taken.snapshots == kept
    assert tuple(range(digest.after + 1, digest.snapshot + 1)) == kept


def test_other_messages_are_for_the_coordinator() -> None:
    intake = _intake()
    for message in (pb.ConnectRequest(lease=pb.Lease(colour=3)), pb.ConnectRequest(goodbye=pb.Goodbye())):
        assert intake.report(message.SerializeToString()) is None


def test_a_collector_refuses_what_a_detector_would() -> None:
    report = report_to_wire(REPORTS[0])
    own = ProcessId(service="shop", instance=ProcessName("another"), incarnation=1)
    intake = _intake()
    assert intake.report(pb.ConnectRequest(hello=pb.Hello(process=process_to_wire(own))).SerializeToString()) is None
    with pytest.raises(MalformedError, match="on the stream of another"):
        intake.report(pb.ConnectRequest(report=report).SerializeToString())
    with pytest.raises(RefusedError, match="report-bytes-max"):
        _intake(report_bytes_max=10).report(pb.ConnectRequest(report=report).SerializeToString())
    large = snapshot_pb.Report()
    large.CopyFrom(report)
    large.snapshot, large.after = 5, 4
    large.made.extend(pb_made(number) for number in range(20))
    with pytest.raises(RefusedError, match="report-entries-max"):
        _intake(report_entries_max=10).report(pb.ConnectRequest(report=large).SerializeToString())
    with pytest.raises(MalformedError, match="only complete reports"):
        _intake().report(pb.ConnectRequest(difference=pb.Difference(snapshot=5, after=4)).SerializeToString())
    with pytest.raises(RefusedError, match="not a ConnectRequest"):
        _intake().report(b"\xff\xff\xff")


def pb_made(number: int) -> snapshot_pb.CallMade:
    return snapshot_pb.CallMade(number=number, method="/s/X")
