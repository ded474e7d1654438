"""The output folder of an analysis: one writer at a time, and results that are damaged or gone are computed again."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from detector.analysis.analyze import analyze
from detector.analysis.engine import LocalEngine
from detector.analysis.result_folder import CountsError, Manifest, ResultFile, Results
from detector.archive.files import ArchiveError
from detector.archive.units import open_archive
from detector.commands.archives.analyze import analyze as command

SCHEMA = pa.schema([("row", pa.int64())])


def _analyze(archive: Path, out: Path, progress: Callable[[str], None] = lambda _: None) -> None:
    analyze(LocalEngine(), open_archive(str(archive)), str(out), progress=progress)


def _tables(out: Path) -> dict[str, list[str]]:
    """The rows of each table, from the files that the newest manifest names."""
    newest = max((out / "_manifest").glob("*.json"))
    tables = json.loads(newest.read_text())["tables"]
    return {
        name: sorted(str(row) for file in files for row in pq.ParquetFile(out / file["path"]).read().to_pylist())
        for name, files in tables.items()
    }


def _remove_folder(out: Path) -> None:
    shutil.rmtree(out / "verdicts")


def _truncate_verdicts(out: Path) -> None:
    os.truncate(next((out / "verdicts").glob("*/*.parquet")), 100)


def _replace_tallies(out: Path) -> None:
    file = next((out / "_tally").glob("*/*.parquet"))
    pq.write_table(pq.ParquetFile(file).read().slice(1), file)


def _truncate_manifest(out: Path) -> None:
    os.truncate(max((out / "_manifest").glob("*.json")), 10)


def _empty_manifest(out: Path) -> None:
    os.truncate(max((out / "_manifest").glob("*.json")), 0)


@pytest.mark.parametrize(
    "harm",
    [_remove_folder, _truncate_verdicts, _replace_tallies, _truncate_manifest, _empty_manifest],
    ids=lambda each: each.__name__,
)
def test_results_that_are_damaged_or_gone_are_computed_again(
    location: Path, tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    out = tmp_path / "out"
    _analyze(location, out)
    before = _tables(out)
    harm(out)
    _analyze(location, out)
    assert _tables(out) == before
    assert [path.name for path in (out / "_manifest").iterdir()] == ["000000000002.json"]


def test_a_damaged_result_that_its_footer_hides_is_named(location: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    _analyze(location, out)
    for file in (out / "verdicts").glob("*/*.parquet"):
        content = file.read_bytes()
        end = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
        file.write_bytes(content[:4] + bytes(end - 4) + content[end:])
    with pytest.raises(ArchiveError, match=r"/verdicts/day=.*; --again evaluates everything anew"):
        _analyze(location, out)


def test_a_second_analysis_to_the_same_folder_is_refused(location: Path, tmp_path: Path) -> None:
    """Each would remove the other's files, and both would report success."""
    out, refused = tmp_path / "out", []

    def second(_: str) -> None:
        refused.append(CliRunner().invoke(command, [str(location), "--out", str(out)]))

    _analyze(location, out, second)
    assert {(each.exit_code, each.stderr.splitlines()[-1]) for each in refused} == {
        (2, f"stilltrue: {out}: another analysis is in progress")
    }
    assert _tables(out)["verdicts"]
    _analyze(location, out)  # the lock is free again


def _written(results: Results, number: int) -> Manifest:
    rows = [pa.table({"row": [number]}, schema=SCHEMA)]
    file = results.write_part("verdicts", "2026-11-20", 0, rows, SCHEMA)
    return Manifest(number=number, tables={"verdicts": (file,)})


def test_the_later_of_two_commits_fails_where_there_is_no_lock(tmp_path: Path) -> None:
    """In an object store, for example."""
    one, two = Results(location=str(tmp_path)), Results(location=str(tmp_path))
    first, second = _written(one, 1), _written(two, 1)
    one.commit(first)
    with pytest.raises(CountsError, match=r"another analysis has written to .* meanwhile; run this one again"):
        two.commit(second)
    assert one.last() == first
    assert one.intact(first.tables["verdicts"])


def test_a_commit_of_files_that_are_gone_fails(tmp_path: Path) -> None:
    results = Results(location=str(tmp_path))
    (file,) = _written(results, 1).tables["verdicts"]
    gone = ResultFile(path=file.path.replace("part-", "part-other-"), rows=1)
    with pytest.raises(CountsError, match=r"another analysis has removed files of this one from .*part-other-"):
        results.commit(Manifest(number=1, tables={"verdicts": (file, gone)}))
