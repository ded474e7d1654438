"""Files are written whole or not at all; a bad one is named, and the others are read."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from detector.archive.files import ArchiveError, ArchiveFiles, day_of
from detector.archive.rows import schema
from detector.archive.writer import ArchiveWriter
from tests.synthetic.random_snapshots import Judged


@pytest.fixture
def store(tmp_path: Path, run: Judged) -> ArchiveFiles:
    store = ArchiveFiles(str(tmp_path / "archive"))
    writer = ArchiveWriter(store, reports_max=200)
    for made in run.made[:100]:
        writer.add(made.assembled, members=made.members)
    writer.flush()
    return store


def _rows(store: ArchiveFiles, table: str) -> pa.Table:
    return pa.concat_tables([data for file in store.scan(table).files for data in store.read(file)])


def test_written_rows_are_read_back(store: ArchiveFiles, run: Judged) -> None:
    assert _rows(store, "snapshots").equals(run.snapshots.slice(0, 100))
    assert _rows(store, "reports").to_pylist() == [row for row in run.reports.to_pylist() if row["snapshot"] <= 100]
    assert len(store.scan("reports").files) > 1


def test_a_file_holds_whole_snapshots_sorted(store: ArchiveFiles) -> None:
    seen: set[int] = set()
    for file in store.scan("reports").files:
        numbers = [number for data in store.read(file) for number in data.column("snapshot").to_pylist()]
        assert numbers == sorted(numbers)
        assert not seen.intersection(numbers)
        seen.update(numbers)


def test_columns_and_groups_can_be_chosen(store: ArchiveFiles) -> None:
    file = store.scan("snapshots").files[0]
    (data,) = store.read(file, columns=["snapshot", "outcome"], groups=[0])
    assert data.column_names == ["snapshot", "outcome"]


@pytest.mark.parametrize("length", [0, 3, 1000])
def test_a_torn_file_is_named_and_the_others_are_read(store: ArchiveFiles, length: int) -> None:
    before = store.scan("snapshots")
    torn = Path(before.files[0].path)
    torn.write_bytes(torn.read_bytes()[:length])
    scan = store.scan("snapshots")
    assert scan.files == before.files[1:]
    assert [left.path for left in scan.left_out] == [str(torn)]
    assert scan.left_out[0].reason


def test_a_file_torn_in_the_middle_is_an_error_that_names_it(store: ArchiveFiles) -> None:
    file = store.scan("reports").files[0]
    data = bytearray(Path(file.path).read_bytes())
    data[4 : len(data) // 2] = b"\0" * (len(data) // 2 - 4)
    Path(file.path).write_bytes(data)
    with pytest.raises(ArchiveError, match=Path(file.path).name):
        list(store.read(file))


def test_foreign_and_newer_files_are_left_out(store: ArchiveFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Path(store.scan("snapshots").files[0].path).parent
    pq.write_table(pa.table({"x": [1]}), folder / "foreign.parquet")
    known = schema.SCHEMA_VERSION
    monkeypatch.setattr(schema, "SCHEMA_VERSION", 99)
    newer = store.write("snapshots", folder.name.removeprefix("day="), schema.SNAPSHOTS.empty_table())
    left = {Path(each.path).name: each.reason for each in store.scan("snapshots").left_out}
    assert left == {
        "foreign.parquet": "not written as a file of snapshots by stilltrue",
        Path(newer).name: f"schema version 99 is newer than {known}, the newest supported here",
    }


def test_a_column_that_an_older_version_lacks_is_null(run: Judged) -> None:
    older = run.snapshots.drop_columns(["begun_by", "previous"])
    got = schema.conformed(older, schema.SNAPSHOTS)
    assert got.schema.equals(schema.SNAPSHOTS)
    assert got.column("previous").null_count == got.num_rows


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path, run: Judged, monkeypatch: pytest.MonkeyPatch) -> None:
    store = ArchiveFiles(str(tmp_path))

    def full(*_args: object, **_more: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("detector.archive.files.pq.ParquetWriter", full)
    with pytest.raises(OSError, match="No space"):
        store.write("snapshots", "2026-11-20", run.snapshots)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_days_bound_the_scan(tmp_path: Path, run: Judged) -> None:
    store = ArchiveFiles(str(tmp_path))
    for day in ("2026-11-18", "2026-11-19", "2026-11-20"):
        store.write("snapshots", day, run.snapshots.slice(0, 3))
    assert [file.day for file in store.scan("snapshots", since="2026-11-19").files] == ["2026-11-19", "2026-11-20"]
    assert [file.day for file in store.scan("snapshots", until="2026-11-18").files] == ["2026-11-18"]


def test_a_file_outside_a_days_folder_is_named(tmp_path: Path, run: Judged) -> None:
    """A renamed day is named; hidden folders and other files are ignored."""
    store = ArchiveFiles(str(tmp_path))
    path = Path(store.write("reports", "2026-11-20", run.reports))
    kept = Path(store.write("reports", "2026-11-21", run.reports))
    day = path.parent.rename(path.parent.with_name("2026-11-20"))
    stray = shutil.copy(kept, tmp_path / "reports" / "beside.parquet")
    (tmp_path / "reports" / "_scratch").mkdir()
    (tmp_path / "reports" / "notes.txt").touch()
    scan = store.scan("reports")
    assert [file.path for file in scan.files] == [str(kept)]
    assert [(each.path, each.reason.split(" (")[0]) for each in scan.left_out] == [
        (str(day), "not in the folder of a day"),
        (str(stray), "not in the folder of a day"),
    ]
    assert store.scan("reports", since="2026-11-21").left_out == ()


def test_a_missing_archive_is_an_error_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(
        ArchiveError,
        match=r"no archive here \(there is no such folder\); a detector keeps one if .*stilltrue-detector\[archive\]",
    ):
        ArchiveFiles(str(tmp_path / "nothing")).check()
    with pytest.raises(
        ArchiveError, match=r"no archive here \(none of the folders .*; a detector writes its first files within a minute"
    ):
        ArchiveFiles(str(tmp_path)).check()  # a detector makes the folder when it starts
    (tmp_path / "archive-journal").touch()  # rows for its first files
    with pytest.raises(ArchiveError, match=r"no archive here .*; a detector writes its first files within a minute"):
        ArchiveFiles(str(tmp_path / "archive")).check()
    (tmp_path / "archive" / "reports").mkdir(parents=True)
    with pytest.raises(ArchiveError, match=f"no archive here .*; there is one in {tmp_path}/archive$"):
        ArchiveFiles(f"{tmp_path}/").check()  # the detector's own folder
    with pytest.raises(ArchiveError, match="what://x"):
        ArchiveFiles("what://x")


def test_a_filesystem_that_is_not_installed_is_an_error_in_one_line() -> None:
    with pytest.raises(ArchiveError, match=r"fsspec\+nothing://x: ") as caught:
        ArchiveFiles("fsspec+nothing://x")  # with fsspec and without
    assert "\n" not in str(caught.value)


def test_a_location_may_be_a_uri(tmp_path: Path, run: Judged) -> None:
    store = ArchiveFiles(f"file://{tmp_path}")
    store.write("snapshots", day_of(0.0), run.snapshots.slice(0, 3))
    assert [file.rows for file in ArchiveFiles(str(tmp_path)).scan("snapshots").files] == [3]


def test_a_files_content_is_synced_before_its_name(store: ArchiveFiles, run: Judged, monkeypatch: pytest.MonkeyPatch) -> None:
    settled: list[str] = []
    monkeypatch.setattr("detector.archive.files.sync", lambda path: settled.append(path.name))
    written = Path(store.write("snapshots", "2026-11-20", run.snapshots))
    assert written.exists()
    assert len(settled) == 1
    assert settled[0] != written.name


def test_a_name_that_is_not_utf8_is_an_error_that_names_it(store: ArchiveFiles) -> None:
    """Left by an old archiver, for example; pyarrow can neither name nor open such a file."""
    (day,) = (Path(store.root) / "reports").iterdir()
    Path(os.fsdecode(os.fsencode(day) + b"/copy-\xe4.parquet")).touch()
    with pytest.raises(ArchiveError, match=rf"reports/{day.name}/copy-\\xe4.parquet: its name is not UTF-8: rename it"):
        store.scan("reports")
    with pytest.raises(ArchiveError, match="its name is not UTF-8"):
        ArchiveFiles(os.fsdecode(b"archive-\xe4"))


@pytest.mark.parametrize(
    ("location", "text"),
    [("nosuch://x", "Unrecognized filesystem type in URI: nosuch://x"), ("s3://b/p?what=1", "s3://b/p?what=1: ")],
)
def test_a_location_that_cannot_be_opened_is_named_once(location: str, text: str) -> None:
    with pytest.raises(ArchiveError) as error:
        ArchiveFiles(location)
    assert str(error.value).startswith(text)
    assert str(error.value).count(location) == 1
