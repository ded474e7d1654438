"""One suite of hostile archives: every way to a verdict gives the service's or none with the reason, never another.

The ways: the local engine over whole files, reports in any order (what the DataFrames do), and the stream, driven here without
Spark. tests/spark/test_parity.py takes the same archives through Spark itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pytest

from detector.analysis.analyze import analyze
from detector.analysis.assembly import assembled, header_rows
from detector.analysis.engine import LocalEngine
from detector.analysis.result import Analysis
from detector.analysis.verdicts import verdicts_on
from detector.archive.files import ArchiveError
from detector.archive.rows.row_decoder import verdict_of
from detector.archive.units import Archive, open_archive
from detector.core.registry import find_predicates
from stilltrue.model import Holds, Verdict
from tests.synthetic.hostile_archives import (
    FOREIGN,
    HARMLESS,
    LOSSY,
    NAMES,
    Key,
    harmed,
    verdict_rows,
    wanted,
    without_ids,
)

pytestmark = pytest.mark.slow  # whole archives


@pytest.fixture(scope="module")
def truth() -> Mapping[Key, Verdict]:
    found = wanted()
    told = {(key[2], verdict.holds) for key, verdict in found.items()}
    assert {("deadlock", Holds.TRUE), ("termination", Holds.TRUE), ("termination", Holds.UNDETERMINED)} <= told
    assert any(verdict.witness.text.startswith("2 of 3 expected have joined (") for verdict in found.values())
    return found


def _local(folder: Path, out: Path) -> tuple[dict[Key, Verdict], Analysis]:
    analysis = analyze(LocalEngine(), open_archive(str(folder)), str(out), NAMES, progress=lambda _: None)
    return verdict_rows(out / "verdicts"), analysis


def _any_order(folder: Path) -> dict[Key, Verdict]:
    archive = open_archive(str(folder))
    rows = [_rows(archive, "reports"), header_rows(_rows(archive, "snapshots"))]
    found = verdicts_on(assembled(pa.concat_tables(rows, promote_options="default")), find_predicates(NAMES))
    return {(row["archive"], row["snapshot"], row["predicate"]): verdict_of(row) for row in found.to_pylist()}


def _rows(archive: Archive, table: str) -> pa.Table:
    return pa.concat_tables([rows for file in archive.files(table) for rows in archive.store.read(file)])


@pytest.mark.parametrize("name", sorted(HARMLESS))
def test_nothing_that_keeps_every_row_changes_a_verdict(name: str, truth: Mapping[Key, Verdict], tmp_path: Path) -> None:
    folder = harmed(tmp_path / "archive", name)
    found, analysis = _local(folder, tmp_path / "out")
    assert found == truth
    assert (analysis.snapshots, analysis.lost()) == (len(truth) // len(NAMES), ())
    assert _any_order(folder) == truth


@pytest.mark.parametrize("name", sorted(FOREIGN))
def test_foreign_files_are_named_and_change_no_verdict(name: str, truth: Mapping[Key, Verdict], tmp_path: Path) -> None:
    folder = harmed(tmp_path / "archive", name)
    found, analysis = _local(folder, tmp_path / "out")
    assert found == truth
    assert {Path(path).name for path, _ in analysis.left_out} == {"prices.parquet", "empty.parquet", "notes.parquet"}
    assert _any_order(folder) == truth


@pytest.mark.parametrize("name", sorted(LOSSY))
def test_losses_are_reported_and_cause_no_verdict(name: str, truth: Mapping[Key, Verdict], tmp_path: Path) -> None:
    folder = harmed(tmp_path / "archive", name)
    found, analysis = _local(folder, tmp_path / "out")
    assert found.items() <= truth.items()
    assert analysis.lost() or analysis.left_out
    assert len(found) == len(truth) or analysis.headless or analysis.left_out
    assert_never_another(_any_order(folder), truth)


def assert_never_another(found: Mapping[Key, Verdict], truth: Mapping[Key, Verdict]) -> None:
    """Whatever is not the service's answer is none."""
    assert found.keys() <= truth.keys()
    doubted = 0
    for key, verdict in found.items():
        assert verdict.holds in {truth[key].holds, Holds.UNDETERMINED}, key
        doubted += verdict.holds is not truth[key].holds
    assert doubted


def test_detectors_without_ids_in_one_folder_are_reported_as_indistinguishable(tmp_path: Path) -> None:
    folder = tmp_path / "archive"
    without_ids(folder, 1, 0.0)
    without_ids(folder, 2, 7.0)
    found, analysis = _local(folder, tmp_path / "out")
    assert {number for _, number, _ in found} == {14}, "only one of them has taken it"
    assert analysis.left_out
    assert {reason.partition(" have two start times")[1] for _, reason in analysis.left_out} == {" have two start times"}
    with pytest.raises(ArchiveError, match=r"13 snapshots \(1 to 13\) have two start times"):
        _any_order(folder)
