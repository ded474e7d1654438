"""What a stream remembers and decides, without Spark: finished numbers, commits, and when a snapshot is finished."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from detector.analysis.assembly import WAIT_REPORT_COLUMNS, header_rows
from detector.archive.compact import compact
from detector.archive.files import Store
from detector.archive.row_decoder import verdict_of
from detector.archive.schema import conformed
from detector.archive.writer import ArchiveWriter
from detector.core.registry import find_predicate
from detector.spark.streaming.bucket import Assembled, Patience, assemble, fragment_schema
from detector.spark.streaming.interval_set import Finished
from detector.spark.streaming.packing import PIECES, opened, packing, path_of
from detector.spark.streaming.progress import Folder, Pending, Progress, ProgressError, continued
from detector.synthetic.snapshots import EPOCH_SECONDS, Judged, WorldShape, judged, random_snapshots

DEADLOCK = find_predicate("deadlock")
SCHEMA = fragment_schema(WAIT_REPORT_COLUMNS)


@pytest.fixture(scope="module")
def short() -> Judged:
    return judged(random_snapshots(5, 20, WorldShape(missing_share=0.2)), [DEADLOCK])


def _patience(watermark: float | None = None, *, headers: bool = True) -> Patience:
    return Patience(watermark=watermark, give_up_seconds=100.0, headers_expected=headers)


def _rows(*tables: pa.Table) -> pa.Table:
    return pa.concat_tables([conformed(table, SCHEMA) for table in tables])


def _verdicts(made: Assembled) -> list[object]:
    return [verdict_of(row) for row in made.verdicts.to_pylist()]


def test_numbers_are_remembered_as_intervals_in_any_order() -> None:
    random = Random(1)
    numbers = [number for number in range(200) if number not in {50, 120, 121}]
    random.shuffle(numbers)
    finished = Finished()
    for at in range(0, len(numbers), 7):
        finished = finished.also(numbers[at : at + 7]).also(numbers[:3])
    assert finished.intervals == ((0, 49), (51, 119), (122, 199))
    asked = np.asarray([-1, 0, 49, 50, 51, 119, 120, 121, 122, 199, 200], np.int64)
    assert finished.has(asked).tolist() == [number in set(numbers) for number in asked.tolist()]
    assert finished.count() == len(numbers)
    assert not Finished().has(asked).any()


def test_whole_snapshots_are_finished_however_they_come(short: Judged) -> None:
    rows = _rows(short.reports, header_rows(short.snapshots), short.reports.slice(3, 30))
    order = list(range(rows.num_rows))
    Random(2).shuffle(order)
    made = assemble(rows.take(pa.array(order)), [DEADLOCK], _patience())
    assert _verdicts(made) == list(short.verdicts)
    assert (made.finished, made.waits, made.waiting.num_rows) == (tuple(range(1, 21)), 0, 0)
    assert made.reports_newest == made.headers_newest == EPOCH_SECONDS + 60 * 20


def test_a_snapshot_waits_for_its_last_report_and_its_header(short: Judged) -> None:
    first = short.reports.filter(pc.equal(short.reports.column("snapshot"), 1))
    header = header_rows(short.snapshots.slice(0, 1))
    for rows in (_rows(first), _rows(first.slice(1), header)):
        waiting = assemble(rows, [DEADLOCK], _patience())
        assert (waiting.finished, waiting.waits, waiting.verdicts.num_rows) == ((), 1, 0)
        assert waiting.oldest == EPOCH_SECONDS + 60
    whole = assemble(_rows(waiting.waiting, first.slice(0, 1)), [DEADLOCK], _patience())
    assert _verdicts(whole) == [short.verdicts[0]]
    all_came = not short.made[0].assembled.snapshot.missing
    assert assemble(_rows(first), [DEADLOCK], _patience(headers=False)).finished == ((1,) if all_came else ())


def test_by_the_watermark_it_is_finished_with_those_that_have_reported(short: Judged) -> None:
    at = next(at for at, made in enumerate(short.made) if not made.assembled.snapshot.missing)
    number = at + 1
    rows = short.reports.filter(pc.equal(short.reports.column("snapshot"), number)).slice(1)
    begun = EPOCH_SECONDS + 60.0 * number
    assert assemble(_rows(rows), [DEADLOCK], _patience(begun + 100)).finished == ()
    late = assemble(_rows(rows), [DEADLOCK], _patience(begun + 100.5))
    assert late.finished == (number,)
    assert late.verdicts.column("missing").to_pylist()[0]


def test_a_commit_brings_results_to_light_and_forgets_what_is_old(tmp_path: Path) -> None:
    folder = Folder(state=tmp_path / "state", results=tmp_path / "verdicts")
    assert folder.last() == Progress()
    for batch in range(4):
        making = f"_making-{batch}"
        (folder.results / making).mkdir(parents=True)
        folder.state.mkdir(exist_ok=True)
        name = f"pending-{making}-0-x.arrow"
        (folder.state / name).write_text("rows")
        pending = {0: Pending(file=name, snapshots=1, rows=2, oldest=3.0)}
        progress = Progress(batch=batch, query="q", making=making, pending=pending, finished=Finished().also([1, 2, 5]))
        folder.commit(progress)
        assert folder.last() == progress
    assert sorted(path.name for path in folder.results.iterdir()) == [f"batch={batch}" for batch in range(4)]
    assert sorted(path.name[:16] for path in folder.state.glob("pending-*")) == ["pending-_making-"] * 2
    assert len(list(folder.state.glob("batch-*"))) == 2


def test_what_was_cut_short_before_its_commit_goes_and_after_it_stays(tmp_path: Path) -> None:
    folder = Folder(state=tmp_path / "state", results=tmp_path / "verdicts")
    (folder.results / "_making-0").mkdir(parents=True)
    folder.clear()
    assert list(folder.results.iterdir()) == []
    (folder.results / "_making-1").mkdir()
    folder.publish(Progress(batch=1, making="_making-1"))
    folder.publish(Progress(batch=1, making="_making-1"))
    assert [path.name for path in folder.results.iterdir()] == ["batch=1"]


def test_the_state_of_another_query_is_refused() -> None:
    mine = Progress(batch=3, query="mine", buckets=5)
    assert continued(mine, query="mine", buckets=8).buckets == 5
    with pytest.raises(ProgressError, match="another checkpoint"):
        continued(mine, query="other", buckets=8)


def test_the_watermark_is_the_earlier_of_both_where_both_come() -> None:
    both = Progress(reports_newest=5.0, headers_newest=3.0)
    assert (both.watermark, replace(both, headers_newest=None).watermark) == (3.0, 5.0)
    assert replace(both, reports_newest=None).watermark is None


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("file:///a/day=1/x.parquet", "/a/day=1/x.parquet"),
        ("file:/a/b%20c.parquet", "/a/b c.parquet"),
        ("s3a://bucket/a/x.parquet", "bucket/a/x.parquet"),
        ("/a/x.parquet", "/a/x.parquet"),
    ],
)
def test_the_path_that_a_uri_says(uri: str, path: str) -> None:
    assert path_of(uri) == path


def test_a_file_that_was_compacted_is_passed_over_and_one_that_was_removed_is_named(short: Judged, tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    writer = ArchiveWriter(store, reports_max=20)
    for made in short.made:
        writer.add(made.assembled, members=made.members)
    writer.flush()
    files = store.scan("snapshots").files
    pieces = [{"table": "snapshots", "path": f"file:{file.path}", "content": None} for file in files]
    compact(store)
    (whole,) = store.scan("snapshots").files
    pieces.append({"table": "snapshots", "path": f"file:{whole.path}", "content": None})
    pieces.append({"table": "snapshots", "path": f"file:{tmp_path}/snapshots/day={whole.day}/x.parquet", "content": None})
    work = packing(store.location, WAIT_REPORT_COLUMNS, Finished().also([1, 2]), 3)
    packed = [row for batch in work([pa.RecordBatch.from_pylist(pieces, schema=PIECES)]) for row in batch.to_pylist()]
    assert [row["reason"] for row in packed if row["path"]] == ["it was removed before it was read"]
    found = {row["bucket"]: opened(row["content"]).column("snapshot").to_pylist() for row in packed if row["content"]}
    assert found == {bucket: [number for number in range(3, 21) if number % 3 == bucket] for bucket in range(3)}
