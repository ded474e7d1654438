"""The rows of a synthetic fleet match what the detector's assembler makes of its reports; planted deadlocks are found."""

from __future__ import annotations

import json
from operator import attrgetter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner

from detector.analysis.assembly import assembled
from detector.analysis.verdicts import WAIT_COLUMNS, verdicts_on
from detector.archive.files import ArchiveFiles
from detector.archive.rows.row_decoder import snapshot_of
from detector.commands.archives.generate_archive import generate_archive
from detector.core.waits.resolution import Resolution
from detector.graph.columns import WaitColumns
from detector.predicates.deadlock import Deadlock
from detector.synthetic.fleet import FleetColumns
from detector.synthetic.fleet_model import Fleet, Ring
from stilltrue.model import ProcessId, ProcessName
from tests.archive.reports_of_rows import report_of

RINGS = (
    Ring(number=1, members=(0, 1, 2), first=3, last=8, formed=1_789_999_000.0),
    Ring(number=2, members=(4, 5), first=6, last=9, formed=1_789_999_100.0, near_miss=True),
)


def _fleet(processes: int) -> Fleet:
    random = np.random.default_rng(0)
    edges = processes * 4
    return Fleet(
        names=[f"service{at:03d}-0" for at in range(processes)],
        pools=random.integers(2, 6, processes),
        callers=random.integers(0, processes, edges),
        callees=random.integers(0, processes, edges),
        weights=np.ones(edges) / edges,
    )


@pytest.mark.parametrize(("load", "seed"), [(1.5, 1), (0.3, 2)])
def test_generated_columns_equal_the_assemblers(load: float, seed: int) -> None:
    fleet = _fleet(12)
    reports = FleetColumns(fleet, RINGS, seed=seed, period_seconds=60, begun=1.79e9).reports(
        1, 25, load=load, missing_share=0.3
    )
    rows = reports.to_pylist()
    for row in assembled(reports).to_pylist():
        own = [report_of(each) for each in rows if each["snapshot"] == row["snapshot"]]
        by_name = {report.process.instance: report for report in own}
        gone = sorted(set(fleet.names) - by_name.keys())
        missing = [ProcessId(service=name[:-2], instance=ProcessName(name), incarnation=1) for name in gone]
        resolution = Resolution(by_name, missing)
        got = snapshot_of(row)
        assert not resolution.channels.orphans()
        assert list(got.waits.waits()) == list(WaitColumns.of(resolution.waits()).waits())
        assert got.in_transit == tuple(sorted(resolution.in_transit(), key=attrgetter("source", "what")))


def test_a_planted_ring_is_a_deadlock_and_a_near_miss_is_not() -> None:
    columns = FleetColumns(_fleet(40), RINGS, seed=1, period_seconds=60, begun=1.79e9)
    rows = assembled(columns.reports(1, 12, load=0.01, missing_share=0)).select(WAIT_COLUMNS)
    holds = {row["snapshot"]: row["holds"] for row in verdicts_on(rows, [Deadlock()]).to_pylist()}
    assert {snapshot for snapshot, answer in holds.items() if answer == "true"} == {3, 4, 5, 6, 7, 8}
    assert set(holds.values()) == {"true", "false"}


def test_small_pools_have_only_the_planted_deadlocks() -> None:
    random = np.random.default_rng(0)
    fleet = Fleet(
        names=[f"service{at:03d}-0" for at in range(8)],
        pools=np.asarray([2, 2, 2, 9, 2, 2, 9, 9]),
        callers=random.integers(0, 8, 40),
        callees=random.integers(0, 8, 40),
        weights=np.ones(40) / 40,
    )
    columns = FleetColumns(fleet, RINGS, seed=1, period_seconds=60, begun=1.79e9)
    rows = assembled(columns.reports(1, 2000, load=0.8, missing_share=0)).select(WAIT_COLUMNS)
    found = verdicts_on(rows, [Deadlock()], findings=True).to_pylist()
    assert {row["snapshot"] for row in found if row["holds"] == "true"} == {3, 4, 5, 6, 7, 8}
    near = {row["snapshot"] for row in found if any(each["kind"] == "near miss" for each in row["findings"] or ())}
    assert near == {9}  # in 6 to 8 there is a deadlock besides


def test_party_names_are_unique() -> None:
    reports = FleetColumns(_fleet(12), RINGS, seed=1, period_seconds=60, begun=1.79e9).reports(
        1, 300, load=3.0, missing_share=0
    )
    for row in reports.select(["served"]).to_pylist():
        names = [served["party"] for served in row["served"]]
        assert len(set(names)) == len(names)


def test_batches_of_any_size_give_the_same_rings() -> None:
    columns = FleetColumns(_fleet(12), RINGS, seed=1, period_seconds=60, begun=1.79e9)
    whole = columns.reports(1, 10, load=0.0, missing_share=0)
    parts = pa.concat_tables([columns.reports(at, 5, load=0.0, missing_share=0) for at in (1, 6)])
    assert whole.equals(parts)


def test_the_command_writes_an_archive_and_its_truth(tmp_path: Path) -> None:
    arguments = [str(tmp_path / "a"), "--processes", "30", "--days", "0.1", "--incidents", "2", "--near-misses", "1"]
    result = CliRunner().invoke(generate_archive, arguments)
    assert result.exit_code == 0, result.output
    truth = json.loads((tmp_path / "a" / "truth.json").read_text())
    assert [each["kind"] for each in truth["planted"]].count("deadlock") == 2
    store = ArchiveFiles(str(tmp_path / "a"))
    assert sum(file.rows for file in store.scan("snapshots").files) == 144
    again = CliRunner().invoke(generate_archive, arguments)
    assert again.exit_code == 2
    assert "already" in again.output


def test_an_invalid_call_graph_is_an_error_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "graph.json").write_text('[{"parent": "a"}]')
    result = CliRunner().invoke(generate_archive, [str(tmp_path / "a"), "--graph", str(tmp_path / "graph.json")])
    assert result.exit_code == 2
    assert result.output.count("\n") == 1
    assert "graph.json" in result.output


def test_too_short_an_archive_for_the_planted_events_is_an_error_in_one_line(tmp_path: Path) -> None:
    result = CliRunner().invoke(generate_archive, [str(tmp_path / "a"), "--days", "0.005"])
    assert result.exit_code == 2
    assert result.output == (
        "stilltrue: 7 snapshots are too few for 4 incidents and 4 near misses (2 for each): "
        "plant fewer, or generate more --days\n"
    )
    assert not (tmp_path / "a").exists()


def test_in_a_small_fleet_every_ring_has_its_processes(tmp_path: Path) -> None:
    result = CliRunner().invoke(generate_archive, [str(tmp_path / "a"), "--processes", "4", "--days", "0.1"])
    assert result.exit_code == 0, result.output
    planted = json.loads((tmp_path / "a" / "truth.json").read_text())["planted"]
    assert len(planted) == 8
    assert all(len(each["processes"]) >= 2 for each in planted)
