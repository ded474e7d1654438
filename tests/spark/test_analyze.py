"""An archive analysed from end to end shows what was planted, and what it could not read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from detector.archive.generate import Plan, generate
from detector.archive.store import Store
from detector.spark import audit
from detector.spark.analyze import Analysis, analyze
from detector.spark.tables import open_archive, table

PLAN = Plan(processes=30, snapshots=240, begun=1_790_000_000.0, incidents=2, near_misses=2, load=0.1, seed=4)


@pytest.fixture(scope="module")
def analysed(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Analysis]:
    folder, out = tmp_path_factory.mktemp("planted"), tmp_path_factory.mktemp("out")
    generate(Store(str(folder)), PLAN, progress=lambda _: None)
    (folder / "snapshots" / "day=2026-09-21" / "000000009999-000000009999-torn.parquet").write_bytes(b"PAR1 torn")
    return folder, out, analyze(spark, open_archive(str(folder)), out, progress=lambda _: None)


def test_the_planted_incidents_and_near_misses_are_those_it_shows(analysed: tuple[Path, Path, Analysis]) -> None:
    folder, _, found = analysed
    planted = json.loads((folder / "truth.json").read_text())["planted"]
    wanted = [each for each in planted if each["kind"] == "deadlock"]
    assert [(list(each.processes), each.first_snapshot, each.last_snapshot) for each in found.incidents] == [
        (each["processes"], each["first_snapshot"], each["last_snapshot"]) for each in wanted
    ]
    near = {
        (tuple(each["processes"]), *(_begun(each[f"{end}_snapshot"]) for end in ("first", "last")))
        for each in planted
        if each["kind"] == "near miss"
    }
    assert len(near) == PLAN.near_misses
    assert near <= {(tuple(row.processes), row["first"], row["last"]) for row in found.near_misses}
    for incident, truth in zip(found.incidents, wanted, strict=True):
        assert incident.detection_seconds is not None
        assert 0 <= incident.detection_seconds <= PLAN.period_seconds
        assert truth["formed"] <= (incident.formed or 0) <= incident.opened
        assert incident.closed is not None


def _begun(snapshot: int) -> float:
    return PLAN.begun + PLAN.period_seconds * (snapshot - 1)


def test_the_rest_of_it_adds_up(analysed: tuple[Path, Path, Analysis]) -> None:
    _, out, found = analysed
    assert found.snapshots == PLAN.snapshots
    assert found.period_seconds == PLAN.period_seconds
    assert sum(row.snapshots for row in found.coverage) == PLAN.snapshots
    assert found.orphans == 0
    assert [Path(path).name for path, _ in found.left_out] == ["000000009999-000000009999-torn.parquet"]
    assert {row.pool for row in found.pools} == {"workers"}
    assert found.holding
    assert found.blocked[0].blocked_seconds > 0
    page = (out / "report.html").read_text()
    assert "torn.parquet" in page
    assert all(each.id in page for each in found.incidents)
    assert not {"<script", "http-equiv", "src=", "href="} & set(page.split())
    assert json.loads((out / "summary.json").read_text())["snapshots"] == PLAN.snapshots


def test_no_call_is_lost_between_two_cuts(spark: SparkSession, analysed: tuple[Path, Path, Analysis]) -> None:
    reports = table(spark, open_archive(str(analysed[0])), "reports").where("snapshot <= 60")
    rows = audit.message_balance(reports).collect()
    assert rows
    assert all(row.made == row.held + row.answered + row.unseen for row in rows)
    assert sum(row.held for row in rows) > 0


def test_an_orphan_is_found(spark: SparkSession, analysed: tuple[Path, Path, Analysis]) -> None:
    reports = table(spark, open_archive(str(analysed[0])), "reports").where("snapshot <= 60")
    assert audit.orphans(reports).count() == 0
    caught = audit.orphans(reports.selectExpr("* except (next_number)", "1L as next_number"))
    assert caught.count() > 0
