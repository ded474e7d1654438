"""The archive's rows by gRPC: complete, from any position, across restarts and compaction, despite slow readers."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import grpc
import pyarrow as pa
import pytest

from detector.archive.compact import compact
from detector.archive.files import ArchiveFiles
from detector.archive.rows.schema import TABLES
from detector.archive.writer import ArchiveWriter
from detector.core.document.reader import write_document
from detector.core.registry import find_predicate
from detector.service.grpc_api.roles import Role, roles_for
from detector.service.storage.archive_sink import FOLDER
from stilltrue.v1 import detector_pb2 as pb
from tests.synthetic.random_snapshots import Judged, judged, random_snapshots


@pytest.fixture(scope="module")
def run() -> Judged:
    return judged(random_snapshots(3, 60), [find_predicate("deadlock")])


@pytest.fixture
def archived(tmp_path: Path, run: Judged) -> Path:
    """A data directory whose archive holds ``run`` in files of five snapshots."""
    writer = ArchiveWriter(ArchiveFiles(str(tmp_path / FOLDER)), reports_max=30)
    for made in run.made:
        writer.add(made.assembled, members=made.members)
    writer.flush()
    return tmp_path


async def _described(detector: Any, table: str) -> list[tuple[int, int]]:
    answer = await detector.stub.DescribeArchive(pb.DescribeArchiveRequest(table=table), timeout=10)
    (told,) = answer.tables
    return [(each.since, each.until) for each in told.ranges]


async def test_only_ranges_that_may_have_wanted_rows_are_named(start_detector: Any, archived: Path, run: Judged) -> None:
    async with start_detector(archived) as detector:
        everything = await _described(detector, "snapshots")
        request = pb.DescribeArchiveRequest(table="snapshots", snapshot_min=12, snapshot_max=13, day_min="2026-01-01")
        (told,) = (await detector.stub.DescribeArchive(request, timeout=10)).tables
        (some,) = [(each.since, each.until) for each in told.ranges]
        assert some in everything
        rows = await _read(detector, table="snapshots", since=some[0], until=some[1])
        assert {12, 13} <= set(rows.column("snapshot").to_pylist())
        request = pb.DescribeArchiveRequest(table="snapshots", snapshot_min=12, snapshot_max=13, day_max="2026-01-01")
        assert not (await detector.stub.DescribeArchive(request, timeout=10)).tables[0].ranges


async def _read(detector: Any, **request: Any) -> pa.Table:
    call = detector.stub.ReadArchive(pb.ReadArchiveRequest(**request), timeout=30)
    responses = [response async for response in call]
    schema = pa.ipc.read_schema(pa.py_buffer(responses[0].schema))
    batches = [pa.ipc.read_record_batch(pa.py_buffer(response.batch), schema) for response in responses[1:]]
    return pa.Table.from_batches(batches, schema)


async def _status(detector: Any, **request: Any) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await _read(detector, **request)
    return refused.value.code(), refused.value.details() or ""


async def test_a_snapshot_no_longer_in_the_store_is_found_in_the_archive(
    start_detector: Any, archived: Path, run: Judged
) -> None:
    async with start_detector(archived) as detector:
        for made in run.made[::20]:
            snapshot = made.assembled.snapshot
            answer = await detector.stub.GetSnapshot(pb.GetSnapshotRequest(id=snapshot.ref.id), timeout=20)
            assert json.loads(answer.document_json) == json.loads(json.dumps(write_document(snapshot)))
            assert (answer.summary.ref.id, answer.summary.kept) == (snapshot.ref.id, False)
            assert answer.summary.outcome == made.assembled.outcome.value
        with pytest.raises(grpc.aio.AioRpcError, match="there is no snapshot 99999 yet"):
            await detector.stub.GetSnapshot(pb.GetSnapshotRequest(id=99999), timeout=20)


async def test_every_row_is_read_once_across_a_restart_and_compaction(start_detector: Any, archived: Path, run: Judged) -> None:
    async with start_detector(archived) as detector:
        ranges = await _described(detector, "reports")
        since, middle, until = ranges[0][0], ranges[3][0] + 2, ranges[-1][1]
        first = await _read(detector, table="reports", since=since, until=middle, whole=True)
    compact(ArchiveFiles(str(archived / FOLDER)))
    async with start_detector(archived) as detector:
        assert len(await _described(detector, "reports")) < len(ranges)
        rest = await _read(detector, table="reports", since=middle, until=until, whole=True, rows_max=7)
    assert pa.concat_tables([first, rest]).to_pylist() == run.reports.to_pylist()


async def test_some_columns_of_some_rows(start_detector: Any, archived: Path, run: Judged) -> None:
    async with start_detector(archived) as detector:
        since = (await _described(detector, "snapshots"))[0][0]
        got = await _read(detector, table="snapshots", columns=["begun", "snapshot"], since=since + 3, until=since + 5)
    assert got.column_names == ["snapshot", "begun"]
    assert got.column("snapshot").to_pylist() == [4, 5]


async def test_a_running_detectors_own_snapshots_are_there(start_detector: Any, process: Any, tmp_path: Path) -> None:
    a, b = process("a"), process("b")
    async with start_detector(tmp_path) as detector:
        assert await _described(detector, "reports") == []
        await detector.join(a, b)
        await detector.ask()
    async with start_detector(tmp_path) as detector:
        ((since, until),) = await _described(detector, "reports")
        got = await _read(detector, table="reports", since=since, until=until)
    assert got.column("process").to_pylist() == ["a", "b"]


async def test_invalid_requests_for_rows_are_refused(start_detector: Any, archived: Path) -> None:
    async with start_detector(archived) as detector:
        code, text = await _status(detector, table="nothing", since=0, until=1)
        assert (code, "available: reports" in text) == (grpc.StatusCode.INVALID_ARGUMENT, True)
        code, text = await _status(detector, table="reports", columns=["nothing"], since=0, until=1)
        assert (code, "no column 'nothing'" in text) == (grpc.StatusCode.INVALID_ARGUMENT, True)
    async with start_detector(archived / "other", archive_bytes_max=0) as detector:
        code, text = await _status(detector, table="reports", since=0, until=1)
        assert (code, "--archive-bytes-max" in text) == (grpc.StatusCode.FAILED_PRECONDITION, True)


async def test_removed_rows_are_an_error_for_a_reader_that_wants_all(start_detector: Any, archived: Path, run: Judged) -> None:
    async with start_detector(archived) as detector:
        ranges = await _described(detector, "snapshots")
        since, until = ranges[0][0], ranges[-1][1]
        gone = ArchiveFiles(str(archived / FOLDER)).scan("snapshots").files[1]
        Path(gone.path).unlink()
        code, text = await _status(detector, table="snapshots", since=since, until=until, whole=True)
        assert (code, "removed" in text) == (grpc.StatusCode.DATA_LOSS, True)
        got = await _read(detector, table="snapshots", since=since, until=until)
    assert got.num_rows == len(run.made) - gone.rows


async def test_a_reader_that_takes_nothing_delays_no_other_and_is_dropped(start_detector: Any, tmp_path: Path) -> None:
    rows = [{"snapshot": number, "witness_text": "x" * 2**20} for number in range(64)]
    ArchiveFiles(str(tmp_path / FOLDER)).write("verdicts", "2026-11-20", pa.Table.from_pylist(rows, schema=TABLES["verdicts"]))
    async with start_detector(tmp_path, archive_readers_max=1, archive_take_seconds_max=0.5) as detector:
        wish: dict[str, Any] = {"table": "verdicts", "since": -64, "until": 0}
        slow = detector.stub.ReadArchive(pb.ReadArchiveRequest(**wish))
        await slow.read()
        code, text = await _status(detector, **wish)
        assert (code, "--archive-readers-max" in text) == (grpc.StatusCode.RESOURCE_EXHAUSTED, True)
        assert await detector.ask() is not None
        async with asyncio.timeout(30):
            while (read := await _read_if_free(detector, **wish)) is None:
                await asyncio.sleep(0.05)
        assert read.num_rows == 64
        with pytest.raises(grpc.aio.AioRpcError, match="--archive-take-seconds-max"):
            await _drain(slow)


async def _read_if_free(detector: Any, **wish: Any) -> pa.Table | None:
    try:
        return await _read(detector, **wish)
    except grpc.aio.AioRpcError:
        return None


async def _drain(call: Any) -> None:
    while await call.read() is not grpc.aio.EOF:
        pass


def test_readers_and_operators_may_read_it() -> None:
    assert roles_for("/stilltrue.v1.DetectorService/ReadArchive") == frozenset({Role.READER, Role.OPERATOR})
