"""The state and decisions of a stream, without Spark: finished numbers, commits, and when a snapshot is finished."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from random import Random
from urllib.request import urlopen

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from detector.analysis.assembly import STATE_REPORT_COLUMNS, WAIT_REPORT_COLUMNS, header_rows
from detector.archive.compact import compact
from detector.archive.files import ArchiveFiles
from detector.archive.rows.row_decoder import verdict_of
from detector.archive.rows.schema import conformed
from detector.archive.writer import ArchiveWriter
from detector.core.registry import find_predicate
from detector.spark.streaming.bucket import AssembledBucket, Patience, assemble, fragment_schema
from detector.spark.streaming.interval_set import IntervalSet
from detector.spark.streaming.metrics import StreamMetrics, served
from detector.spark.streaming.packing import PIECES, packer, unpacked
from detector.spark.streaming.progress import Epoch, Folder, Newest, Pending, Progress, ProgressError
from detector.spark.streaming.published import BATCHES_MIN, Published
from detector.spark.streaming.storage import Storage
from tests.synthetic.random_snapshots import EPOCH_SECONDS, Judged, WorldShape, judged, random_snapshots

DEADLOCK = find_predicate("deadlock")
SCHEMA = fragment_schema(WAIT_REPORT_COLUMNS)

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def short() -> Judged:
    return judged(random_snapshots(5, 20, WorldShape(missing_share=0.2)), [DEADLOCK])


def _patience(watermark: float | None = None, *, headers: bool = True) -> Patience:
    marks = {} if watermark is None else {"": (0, watermark)}
    return Patience(watermarks=marks, give_up_seconds=100.0, late_seconds=1000.0, headers_expected=headers)


def _one(rows: pa.Table, patience: Patience) -> AssembledBucket:
    return assemble(rows, [DEADLOCK], patience)[""]


def _rows(*tables: pa.Table) -> pa.Table:
    return pa.concat_tables([conformed(table, SCHEMA) for table in tables])


def _verdicts(made: AssembledBucket) -> list[object]:
    return [verdict_of(row) for row in made.verdicts.to_pylist()]


def test_numbers_are_remembered_as_intervals_in_any_order() -> None:
    random = Random(1)
    numbers = [number for number in range(200) if number not in {50, 120, 121}]
    random.shuffle(numbers)
    finished = IntervalSet()
    for at in range(0, len(numbers), 7):
        finished = finished.union(numbers[at : at + 7]).union(numbers[:3])
    assert finished.intervals == ((0, 49), (51, 119), (122, 199))
    asked = np.asarray([-1, 0, 49, 50, 51, 119, 120, 121, 122, 199, 200], np.int64)
    assert finished.has(asked).tolist() == [number in set(numbers) for number in asked.tolist()]
    assert finished.count() == len(numbers)
    assert not IntervalSet().has(asked).any()


def test_complete_snapshots_are_finished_in_any_order_of_arrival(short: Judged) -> None:
    rows = _rows(short.reports, header_rows(short.snapshots), short.reports.slice(3, 30))
    order = list(range(rows.num_rows))
    Random(2).shuffle(order)
    made = _one(rows.take(pa.array(order)), _patience())
    assert _verdicts(made) == list(short.verdicts)
    assert (made.finished, made.waits, made.waiting.num_rows) == (tuple(range(1, 21)), 0, 0)
    assert made.newest == ((0, EPOCH_SECONDS + 60 * 20), (0, EPOCH_SECONDS + 60 * 20))


def test_a_snapshot_waits_for_its_last_report_and_its_header(short: Judged) -> None:
    first = short.reports.filter(pc.equal(short.reports.column("snapshot"), 1))
    header = header_rows(short.snapshots.slice(0, 1))
    for rows in (_rows(first), _rows(first.slice(1), header)):
        waiting = _one(rows, _patience())
        assert (waiting.finished, waiting.waits, waiting.verdicts.num_rows) == ((), 1, 0)
        assert waiting.due == EPOCH_SECONDS + 160
    whole = _one(_rows(waiting.waiting, first.slice(0, 1)), _patience())
    assert _verdicts(whole) == [short.verdicts[0]]
    all_came = not short.made[0].assembled.snapshot.missing
    assert _one(_rows(first), _patience(headers=False)).finished == ((1,) if all_came else ())


def test_at_the_watermark_a_snapshot_is_evaluated_from_the_reports_so_far(short: Judged) -> None:
    at = next(at for at, made in enumerate(short.made) if not made.assembled.snapshot.missing)
    number = at + 1
    rows = short.reports.filter(pc.equal(short.reports.column("snapshot"), number)).slice(1)
    begun = EPOCH_SECONDS + 60.0 * number
    assert _one(_rows(rows), _patience(begun + 100)).finished == ()
    late = _one(_rows(rows), _patience(begun + 100.5))
    assert (late.finished, late.given_up, late.judged) == ((), 1, 1)
    assert late.verdicts.column("missing").to_pylist()[0]
    assert late.verdicts.column("holds").to_pylist() != ["false"]


def test_late_reports_correct_the_verdict_and_duplicates_do_not(short: Judged) -> None:
    at = next(at for at, verdict in enumerate(short.verdicts) if not verdict.missing)
    number, begun = at + 1, EPOCH_SECONDS + 60.0 * (at + 1)
    own = short.reports.filter(pc.equal(short.reports.column("snapshot"), number))
    header = header_rows(short.snapshots.slice(at, 1))
    given_up = _one(_rows(own.slice(2), header), _patience(begun + 101))
    absent = own.slice(0, 2).column("process").to_pylist()
    assert given_up.verdicts.column("missing").to_pylist() == [absent]
    assert given_up.verdicts.column("revision").to_pylist() == [None]
    doubled = _one(_rows(given_up.waiting, own.slice(2), header), _patience(begun + 101))
    assert (doubled.verdicts.num_rows, doubled.given_up) == (0, 1)
    once_more = _one(_rows(doubled.waiting, own.slice(0, 1)), _patience(begun + 101))
    assert once_more.verdicts.column("missing").to_pylist() == [absent[1:]]
    whole = _one(_rows(once_more.waiting, own.slice(1, 1)), _patience(begun + 101))
    assert _verdicts(whole) == [short.verdicts[at]]
    assert (whole.verdicts.column("revision").to_pylist(), whole.finished, whole.closed) == ([2], (number,), ())
    closed = _one(_rows(once_more.waiting), _patience(begun + 1001))
    assert (closed.verdicts.num_rows, closed.finished, closed.closed) == (0, (number,), (number,))


def test_a_lost_report_causes_no_false_and_no_true(short: Judged) -> None:
    """Of each snapshot, whichever one report is lost, its header there: the service's answer, or none."""
    asked = [DEADLOCK, find_predicate("termination"), find_predicate("quiescence")]
    wanted = judged(short.made, asked)
    truth = {(verdict.snapshot.id, verdict.predicate): verdict for verdict in wanted.verdicts}
    schema = fragment_schema((*WAIT_REPORT_COLUMNS, *STATE_REPORT_COLUMNS))
    names = {name for row in wanted.reports.column("process").unique().to_pylist() for name in [row]}
    told = 0
    for name in sorted(names):
        kept = wanted.reports.filter(pc.not_equal(wanted.reports.column("process"), name))
        rows = pa.concat_tables([conformed(table, schema) for table in (kept, header_rows(wanted.snapshots))])
        made = assemble(rows, asked, _patience(EPOCH_SECONDS + 1e6))[""]
        for row in made.verdicts.to_pylist():
            service = truth[row["snapshot"], row["predicate"]]
            if name in row["missing"] and name not in service.missing:
                told += 1
                assert row["holds"] in {"undetermined", service.holds.value}
                assert row["holds"] != "false"
    assert told > 100


def test_snapshots_of_two_archives_are_assembled_separately(short: Judged) -> None:
    rows = _rows(short.reports, header_rows(short.snapshots))
    at = rows.schema.get_field_index("archive")
    other = rows.set_column(at, "archive", pa.array(["b"] * rows.num_rows)).filter(pc.not_equal(rows.column("snapshot"), 3))
    made = assemble(pa.concat_tables([rows, other]), [DEADLOCK], _patience())
    assert _verdicts(made[""]) == list(short.verdicts)
    assert _verdicts(made["b"]) == [verdict for verdict in short.verdicts if verdict.snapshot.id != 3]
    assert set(made["b"].verdicts.column("archive").to_pylist()) == {"b"}


def _folder(place: Path) -> Folder:
    return Folder(state=Storage(location=str(place), folder="state"), results=Storage(location=str(place)))


def _committed(folder: Folder, epoch: Epoch, batch: int) -> Progress:
    making = f"_making-{batch}"
    name = f"pending-{making}-0-x.arrow"
    pending = {0: Pending(file=name, snapshots=1, given_up=0, rows=2, due={"": 3.0})}
    progress = Progress(
        batch=batch,
        making=making,
        pending=pending,
        positions={"reports": -7},
        logs=(f"read-{batch}.json",),
        finished={"": IntervalSet().union([1, 2, 5])},
        newest={"": ((0, 1.0), None)},
        torn=("a.parquet",),
    )
    for table in ("verdicts", "left_out"):
        folder.state.write(f"{making}/{table}/x.parquet", table.encode())
    folder.state.write(name, b"rows")
    folder.state.write(f"read-{batch}.json", b"{}")
    folder.commit(progress, epoch)
    return progress


def test_a_commit_publishes_results_and_removes_old_files(tmp_path: Path) -> None:
    folder = _folder(tmp_path)
    assert folder.last() == Progress()
    epoch = folder.begin()
    for batch in range(4):
        assert _committed(folder, epoch, batch) == folder.last()
    for table in ("verdicts", "left_out"):
        assert sorted(path.name for path in (tmp_path / table).iterdir()) == [f"batch={batch}" for batch in range(4)]
        assert (tmp_path / table / "batch=3" / "x.parquet").read_text() == table
    kinds = sorted(name.partition("-")[0] for name in folder.state.names())
    assert kinds == ["commit", "commit", "epoch", "pending", "pending", "read", "read"]
    assert folder.state.folders() == []


def test_an_interrupted_batch_counts_only_after_its_commit(tmp_path: Path) -> None:
    folder = _folder(tmp_path)
    folder.state.write("_making-0/verdicts/x.parquet", b"of a batch that has not been")
    assert folder.resume() == Progress()
    assert folder.state.folders() == []
    folder.state.write("_making-1/verdicts/x.parquet", b"of one that has")
    for _ in range(2):
        folder.publish(Progress(batch=1, making="_making-1"))
    assert [path.name for path in (tmp_path / "verdicts").iterdir()] == ["batch=1"]


def test_state_of_an_earlier_version_is_refused(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "batch-000000000001.json").write_text('{"batch": 1, "version": 2}')
    with pytest.raises(ProgressError, match="earlier version"):
        _folder(tmp_path).last()


def test_an_archives_watermark_is_the_earlier_of_both_where_both_come() -> None:
    newest: dict[str, Newest] = {
        "a": ((7, 5.0), (6, 3.0)),
        "b": ((2, 9.0), None),
        "c": (None, (4, 7.0)),
        "d": ((8, 5.0), (7, 99.0)),
    }
    both = Progress(newest=newest)
    assert both.watermarks() == {"a": (6, 3.0), "b": (2, 9.0), "d": (7, 99.0)}


def test_an_older_state_without_start_numbers_is_continued(tmp_path: Path) -> None:
    folder = _folder(tmp_path)
    raw = {"batch": 4, "version": 3, "pending": {}, "newest": {"a": [5.0, None]}, "logs": [], "finished": {}, "closed": {}}
    folder.state.write("commit-000001-000000000004.json", json.dumps(raw).encode())
    last = folder.last()
    assert (last.batch, last.torn, last.newest) == (4, (), {"a": ((-1, 5.0), None)})
    folder.commit(replace(last, batch=5), folder.begin())
    assert folder.last() == replace(last, batch=5)


def test_a_compacted_file_is_skipped_and_a_removed_one_is_named(short: Judged, tmp_path: Path) -> None:
    store = ArchiveFiles(str(tmp_path))
    writer = ArchiveWriter(store, reports_max=20)
    for made in short.made:
        writer.add(made.assembled, members=made.members)
    writer.flush()
    files = store.scan("snapshots").files
    pieces = [{"table": "snapshots", "path": file.path, "content": None} for file in files]
    compact(store)
    (whole,) = store.scan("snapshots").files
    pieces.append({"table": "snapshots", "path": whole.path, "content": None})
    pieces.append({"table": "snapshots", "path": f"{tmp_path}/snapshots/day={whole.day}/x.parquet", "content": None})
    work = packer(store.location, WAIT_REPORT_COLUMNS, Progress(buckets=3, finished={"": IntervalSet().union([1, 2])}))
    packed = [row for batch in work([pa.RecordBatch.from_pylist(pieces, schema=PIECES)]) for row in batch.to_pylist()]
    assert [row["reason"] for row in packed if row["path"]] == ["it was removed before it was read"]
    found = {row["bucket"]: unpacked(row["content"]).column("snapshot").to_pylist() for row in packed if row["content"]}
    assert found == {bucket: [number for number in range(3, 21) if number % 3 == bucket] for bucket in range(3)}


def test_reports_of_a_snapshot_given_up_for_good_are_counted(short: Judged, tmp_path: Path) -> None:
    store = ArchiveFiles(str(tmp_path))
    path = store.write("reports", "2026-09-21", short.reports)
    numbers = short.reports.column("snapshot").to_pylist()
    done, closed = IntervalSet().union([1, 2, 3]), IntervalSet().union([2])
    work = packer(store.location, WAIT_REPORT_COLUMNS, Progress(buckets=1, finished={"": done}, closed={"": closed}))
    pieces = pa.RecordBatch.from_pylist([{"table": "reports", "path": path}], schema=PIECES)
    packed = [row for batch in work([pieces]) for row in batch.to_pylist()]
    assert [row["late"] for row in packed if row["late"] is not None] == [numbers.count(2)]


def test_the_metrics_match_the_newest_commit(tmp_path: Path) -> None:
    folder = _folder(tmp_path)
    names = [family.name for family in StreamMetrics(folder).collect()]
    assert "stilltrue_stream_lag_seconds" not in names, "nothing has been seen"
    pending = {1: Pending(file="x", snapshots=3, given_up=2, rows=9, due={"a": 1.0})}
    newest = {"a": ((9, 500.0), (8, 400.0)), "b": ((3, 450.0), None)}
    progress = Progress(batch=7, pending=pending, newest=newest, verdicts=11, corrected=5, late=4, torn=("x.parquet",))
    folder.commit(progress, folder.begin())
    told = {
        sample.name.removeprefix("stilltrue_stream_"): sample.value
        for family in StreamMetrics(folder, clock=lambda: 1000.0).collect()
        for sample in family.samples
    }
    assert told == {
        "snapshots_waiting": 3, "snapshots_given_up": 2, "batches": 7, "lag_seconds": 600.0,
        "verdicts_total": 11, "verdicts_corrected_total": 5, "reports_late_total": 4,
        "snapshots_mixed_total": 0, "files_torn": 1,
    }  # fmt: skip
    with served(folder, "127.0.0.1", 0) as port, urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        assert "stilltrue_stream_lag_seconds" in answer.read().decode()
    rules = (ROOT / "docs" / "examples" / "stream.rules.yaml").read_text()
    assert {name.removeprefix("stilltrue_stream_") for name in re.findall(r"\bstilltrue_stream_\w+", rules)} <= told.keys()
    for name in re.findall(r"alert: (\w+)", rules):
        page = (ROOT / "docs" / "runbooks" / f"{name}.md").read_text()
        assert f"/docs/runbooks/{name}.md" in rules
        assert all(heading in page for heading in ("## What it means", "## What to look at", "## What to do"))


def _published(place: Path) -> Published:
    return Published(results=Storage(location=str(place / "out")), state=Storage(location=str(place)))


def _batches(published: Published, count: int) -> None:
    for batch in range(count):
        sink = pa.BufferOutputStream()
        pq.write_table(pa.table({"snapshot": [2 * batch, 2 * batch + 1]}), sink)
        published.state.write("making/verdicts/come-0.parquet", sink.getvalue())
        published.put("making/verdicts", "verdicts", batch)
        published.state.remove_folder("making")


def _numbers(folder: Path) -> list[int]:
    files = [path for path in folder.glob("verdicts/batch=*/*.parquet") if path.name[0] != "_"]
    return sorted(number for path in files for number in pq.ParquetFile(path).read().column("snapshot").to_pylist())


def test_many_small_results_are_merged_without_loss(tmp_path: Path) -> None:
    published = _published(tmp_path)
    _batches(published, BATCHES_MIN - 1)
    assert published.compact("verdicts") == 0
    shutil.rmtree(tmp_path / "out")
    _batches(published, BATCHES_MIN)
    assert published.compact("verdicts") == BATCHES_MIN
    (folder,) = (tmp_path / "out" / "verdicts").iterdir()
    assert (folder.name, len(list(folder.iterdir()))) == (f"batch={BATCHES_MIN - 1}", 1)
    assert _numbers(tmp_path / "out") == list(range(2 * BATCHES_MIN))


@pytest.mark.parametrize("step", ["move", "remove"])
def test_an_interrupted_merge_is_completed_by_the_next_start(
    step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cut short before the new file has its name, or before the old ones have gone: no row is lost, or stays twice."""
    published = _published(tmp_path)
    _batches(published, BATCHES_MIN)

    def cut(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        if step == "move":
            patched.setattr(Published, "finish", lambda self: cut() if (tmp_path / "compacting.json").exists() else None)
        else:
            patched.setattr(ArchiveFiles, "remove", cut)
        with pytest.raises(KeyboardInterrupt):
            published.compact("verdicts")
    assert set(_numbers(tmp_path / "out")) == set(range(2 * BATCHES_MIN))
    for _ in range(2):
        published.finish()
        assert _numbers(tmp_path / "out") == list(range(2 * BATCHES_MIN))
