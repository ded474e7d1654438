"""Each snapshot is in one unit and is read once, however its files were copied, restored or compacted."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from detector.archive.compact import compact
from detector.archive.deduplicate import KEYS, by_archive, deduplicated
from detector.archive.files import ArchiveFiles
from detector.archive.rows.schema import REPORTS, SNAPSHOTS
from detector.archive.units import open_archive, shares
from detector.archive.writer import ArchiveWriter, archive_id
from tests.synthetic.random_snapshots import Judged

SCHEMAS = {
    "reports": pa.schema([REPORTS.field(name) for name in ("archive", "snapshot", "process")]),
    "snapshots": pa.schema([SNAPSHOTS.field(name) for name in ("archive", "snapshot")]),
}


def _written(run: Judged, folder: Path, archive: str = "") -> ArchiveFiles:
    store = ArchiveFiles(str(folder))
    writer = ArchiveWriter(store, archive=archive, reports_max=100, seconds_max=1e9)
    for made in run.made:
        writer.add(made.assembled, members=made.members)
    writer.flush()
    return store


def _keys(folder: Path, table: str) -> list[tuple[object, ...]]:
    archive = open_archive(str(folder))
    found: list[tuple[object, ...]] = []
    for unit in archive.units(table):
        rows, failed = unit.read(archive.store, SCHEMAS[table])
        assert not failed
        found += [tuple(row.values()) for row in rows.to_pylist()]
    return found


@pytest.mark.parametrize("table", ["reports", "snapshots"])
def test_copied_and_restored_files_count_once(run: Judged, tmp_path: Path, table: str) -> None:
    _written(run, tmp_path / "archive")
    wanted = _keys(tmp_path / "archive", table)
    assert len(set(wanted)) == len(wanted)
    shutil.copytree(tmp_path / "archive", tmp_path / "before")
    compact(ArchiveFiles(str(tmp_path / "archive")))
    for path in (tmp_path / "before").rglob("*.parquet"):  # what was compacted comes back, under other names
        shutil.copy(path, tmp_path / "archive" / path.relative_to(tmp_path / "before").with_name(f"copy-{path.name}"))
    assert sorted(_keys(tmp_path / "archive", table), key=str) == sorted(wanted, key=str)


@pytest.mark.longer
@pytest.mark.parametrize("table", ["reports", "snapshots"])
def test_two_detectors_in_one_folder_are_both_read_and_never_compacted_together(
    run: Judged, tmp_path: Path, table: str
) -> None:
    one = _written(run, tmp_path, "a")
    _written(run, tmp_path, "b")
    keys = _keys(tmp_path, table)
    assert {key[0] for key in keys} == {"a", "b"}
    assert [key[1:] for key in keys if key[0] == "a"] == [key[1:] for key in keys if key[0] == "b"]
    compact(one)
    assert {file.archive for file in one.scan(table).files} == {"a", "b"}
    assert _keys(tmp_path, table) == keys


def test_one_of_two_copies_may_be_torn(run: Judged, tmp_path: Path) -> None:
    store = _written(run, tmp_path)
    file = store.scan("snapshots").files[0]
    shutil.copy(file.path, Path(file.path).with_name(f"copy-{file.name}"))
    data = bytearray(Path(file.path).read_bytes())
    data[4:200] = b"\0" * 196  # the footer still reads
    Path(file.path).write_bytes(data)
    rows, failed = open_archive(str(tmp_path)).units("snapshots")[0].read(store, SCHEMAS["snapshots"])
    assert rows.num_rows == file.rows
    assert [error.path for error in failed] == [file.path]


def test_parts_of_an_archive_are_contiguous_and_complete(run: Judged, tmp_path: Path) -> None:
    _written(run, tmp_path)
    units = open_archive(str(tmp_path)).units("reports")
    for most in (1, 3, 1000):
        parts = shares(units, most)
        assert [unit for part in parts for unit in part] == units
        assert len(parts) == min(most, len(units))


def test_the_first_of_equal_rows_counts_and_sorted_rows_are_not_copied() -> None:
    rows = pa.table({"snapshot": [2, 1, 2, 1], "process": ["b", None, "b", "a"], "what": [1, 2, 3, 4]})
    assert deduplicated(rows).column("what").to_pylist() == [2, 4, 1]
    ordered = deduplicated(rows)
    assert deduplicated(ordered) is ordered
    assert deduplicated(rows, KEYS["snapshots"]).column("what").to_pylist() == [2, 1]


def test_rows_of_several_archives_are_separated() -> None:
    rows = pa.table({"archive": ["b", None, "b", ""], "snapshot": [1, 2, 3, 4]})
    assert {name: part.column("snapshot").to_pylist() for name, part in by_archive(rows)} == {"": [2, 4], "b": [1, 3]}


def test_a_detectors_id_is_generated_once(tmp_path: Path) -> None:
    own = archive_id(tmp_path / "data")
    assert len(own) == 12
    assert archive_id(tmp_path / "data") == own
    assert archive_id(tmp_path / "other") != own
