"""The assembly's result for a large fleet is the same whether its reports are read as columns or as objects."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from detector.assembly import evaluation
from detector.assembly.columnar import assembled_as_columns
from detector.assembly.records import Header, header_record, report_record
from detector.assembly.step import Step, step
from detector.core.protocol.assembler import Assembled
from detector.spark.assembly.recent import RecentReports
from stilltrue.model import ProcessId, ProcessName, SnapshotId
from stilltrue.v1 import agent_pb2
from stilltrue.v1 import snapshot_pb2 as pb
from tests.bench.fleet.bodies import BEGUN, Fleet

MEMBERS = 240
Read = list[Assembled | None]


def _records(fleet: Fleet, snapshot: int, *, gone: int = 0) -> list[bytes]:
    """The records of a fleet whose last ``gone`` reports are missing."""
    reports = [pb.Report.FromString(fleet.report(index, snapshot, snapshot - 1)) for index in range(fleet.members)]
    header = Header(
        fleet="shop", snapshot=SnapshotId(snapshot), begun=BEGUN - 5, ended=BEGUN + 1e6, begun_by="test",
        reported=tuple(_process(each.process) for each in reports),
        predicates=("deadlock", "gridlock", "termination"), scopes={"some": {"service": "shop-1"}},
    )  # fmt: skip
    came = reports[: len(reports) - gone]
    sent = [report_record(agent_pb2.ConnectRequest(report=each).SerializeToString()) for each in came]
    return [header_record(header), *sent]


def _process(process: pb.ProcessId) -> ProcessId:
    return ProcessId(service=process.service, instance=ProcessName(process.instance), incarnation=process.incarnation)


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Read:
    """The results of assembling as columns; None if that was not possible."""
    found: Read = []

    def remember(header: Header, records: Sequence[bytes]) -> Assembled | None:
        found.append(assembled_as_columns(header, records))
        return found[-1]

    monkeypatch.setattr(evaluation, "assembled_as_columns", remember)
    return found


def _by_rows(records: list[bytes], monkeypatch: pytest.MonkeyPatch, *, late: bool) -> Step | None:
    with monkeypatch.context() as patched:
        patched.setattr(evaluation, "assembled_as_columns", lambda header, records: None)
        return step(records, late=late)


@pytest.mark.slow
@pytest.mark.parametrize(("deadlocks", "gone"), [(0, 0), (0, 7), (10, 0)])
@pytest.mark.parametrize("late", [True, False])
def test_columns_and_objects_give_the_same_result(
    deadlocks: int, gone: int, late: bool, read: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet = Fleet(members=MEMBERS, entries=2) if not deadlocks else Fleet(members=MEMBERS, deadlocks=deadlocks * MEMBERS)
    records = _records(fleet, 7, gone=gone)
    found, by_rows = step(records, late=late), _by_rows(records, monkeypatch, late=late)
    assert found == by_rows or (found is not None and by_rows is not None and found.record == by_rows.record)
    if gone and not late:
        assert found is None
        assert not read
        return
    assert found is not None
    assert len(read) == 1
    assert read[0] is not None, "it was not read as columns"
    assert bool(found.result) or bool(deadlocks)


def test_an_unchanged_fleet_is_not_read_again(read: Read) -> None:
    """A worker recognises reports that are the same as the last ones."""
    quiet, recent = Fleet(members=MEMBERS, entries=2), RecentReports()
    said = [step(_records(quiet, snapshot), recent=recent) for snapshot in (1, 2, 3)]
    assert all(each is not None and each.result is not None for each in said)
    assert len(read) == 1
    busy = Fleet(members=MEMBERS, entries=2, churn=1.0)
    for snapshot in (4, 5):
        step(_records(busy, snapshot), recent=recent)
    assert len(read) == 3


def test_small_fleets_are_read_as_objects(read: Read) -> None:
    found = step(_records(Fleet(members=20, entries=2), 1))
    assert found is not None
    assert read == [None]
