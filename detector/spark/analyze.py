"""One archive analysed from end to end: verdicts, what follows from them, result tables, the report."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from detector.spark import audit, trends
from detector.spark.evaluate import verdicts_of_archive
from detector.spark.incidents import PastIncident, past_incidents
from detector.spark.report import write_report
from detector.spark.risk import Risk, risks
from detector.spark.tables import Archive, table

PREDICATES = ("deadlock", "gridlock")


@dataclass(frozen=True, slots=True, kw_only=True)
class Analysis:
    """What an archive told, small enough to be held at once."""

    location: str
    predicates: tuple[str, ...]
    snapshots: int
    reports: int
    begun: float
    ended: float
    period_seconds: float
    answers: dict[str, dict[str, int]]
    incidents: tuple[PastIncident, ...]
    near_misses: tuple[Row, ...]
    coverage: tuple[Row, ...]
    blocked: tuple[Row, ...]
    pools: tuple[Row, ...]
    locks: tuple[Row, ...]
    holding: tuple[Row, ...]
    risks: tuple[Risk, ...]
    orphans: int
    skewed: tuple[Row, ...]
    silent: tuple[Row, ...]
    left_out: tuple[tuple[str, str], ...]


def analyze(
    spark: SparkSession,
    archive: Archive,
    out: Path,
    predicates: Sequence[str] = PREDICATES,
    progress: Callable[[str], None] = print,
) -> Analysis:
    """Analyse ``archive`` and write the result tables (Parquet), ``summary.json`` and ``report.html`` to ``out``.

    ``deadlock`` is always among the predicates: incidents and near misses come from it. ``progress`` is told each step.
    """
    asked = tuple(dict.fromkeys(("deadlock", *predicates)))
    out.mkdir(parents=True, exist_ok=True)
    steps = _Steps(spark, archive, out, progress)
    analysis = steps.run(asked)
    summary = {**asdict(analysis), **{name: [_plain(row) for row in getattr(analysis, name)] for name in _ROWS}}
    (out / "summary.json").write_text(json.dumps(summary, indent=1, default=str) + "\n")
    write_report(analysis, out / "report.html")
    return analysis


_ROWS = ("near_misses", "coverage", "blocked", "pools", "locks", "holding", "skewed", "silent")


def _plain(row: Row) -> dict[str, Any]:
    return row.asDict(recursive=True)


class _Steps:
    def __init__(self, spark: SparkSession, archive: Archive, out: Path, progress: Callable[[str], None]) -> None:
        self._spark, self._archive, self._out, self._progress = spark, archive, out, progress

    def run(self, predicates: tuple[str, ...]) -> Analysis:
        count = self._archive.rows("snapshots")
        self._progress(f"evaluating {', '.join(predicates)} on {count} snapshots")
        verdicts = self._kept("verdicts", verdicts_of_archive(self._spark, self._archive, predicates))
        good = verdicts.where("predicate is not null")
        unread = verdicts.where("left_out_path is not null").select("left_out_path", "left_out_reason").distinct().collect()
        answers, definite = self._answers(good)
        times = [time for _, time in definite]
        period = median(later - sooner for sooner, later in pairwise(times)) if len(times) > 1 else 0.0
        self._progress("incidents and near misses")
        incidents = tuple(past_incidents(trends.core_sightings(good).collect(), definite))
        near = self._table("near_misses", trends.near_miss_places(good))
        if incidents:
            self._kept("incidents", self._spark.createDataFrame([asdict(each) for each in incidents], _INCIDENTS))
        snapshots, reports = table(self._spark, self._archive, "snapshots"), table(self._spark, self._archive, "reports")
        self._progress("coverage and clocks")
        coverage = self._table("coverage", trends.coverage(snapshots))
        silent = self._table("missing", audit.missing_members(snapshots))
        skewed = self._table("clocks", audit.clock_skew(reports, snapshots))
        orphans = self._kept("orphans", audit.orphans(reports)).count()
        self._progress("blocked time, pools and locks")
        blocked = self._table("blocked", trends.blocked_time(reports, period))
        pools = self._table("pools", trends.pool_use(reports))
        locks = self._table("locks", trends.lock_waits(reports, period))
        self._progress("calls that hold a worker, and the risk of a circle")
        holding = self._table("holding", trends.holding_calls(reports))
        ranked = risks([(row.service, row.callee, row.samples) for row in holding], _fullest(pools))
        if ranked:
            self._kept("risks", self._spark.createDataFrame([asdict(each) for each in ranked], _RISKS))
        left_out = [(each.path, each.reason) for each in self._archive.left_out]
        left_out += [(row.left_out_path, row.left_out_reason) for row in unread]
        return Analysis(
            location=self._archive.store.location,
            predicates=predicates,
            snapshots=count,
            reports=self._archive.rows("reports"),
            begun=min((row.hour for row in coverage), default=0.0),
            ended=max(times, default=0.0),
            period_seconds=period,
            answers=answers,
            incidents=incidents,
            near_misses=near,
            coverage=coverage,
            blocked=blocked,
            pools=pools,
            locks=locks,
            holding=holding,
            risks=tuple(ranked),
            orphans=orphans,
            skewed=tuple(row for row in skewed if max(row.ahead_seconds, row.behind_seconds) > 0),
            silent=silent,
            left_out=tuple(sorted(set(left_out))),
        )

    def _answers(self, verdicts: DataFrame) -> tuple[dict[str, dict[str, int]], list[tuple[int, float]]]:
        """How often each predicate gave each answer; and the snapshots with a definite answer about deadlock."""
        answers: dict[str, dict[str, int]] = {}
        for row in verdicts.groupBy("predicate", "holds").agg(F.count("*").alias("n")).orderBy("predicate", "holds").collect():
            answers.setdefault(row.predicate, {})[row.holds] = row.n
        told = (
            verdicts.where("predicate = 'deadlock' and holds != 'undetermined'").select("snapshot", "ended").orderBy("snapshot")
        )
        return answers, [(row.snapshot, row.ended or 0.0) for row in told.collect()]

    def _kept(self, name: str, frame: DataFrame) -> DataFrame:
        """``frame`` written to a result table, and read back from there."""
        path = str(self._out / name)
        frame.write.mode("overwrite").parquet(path)
        return self._spark.read.schema(frame.schema).parquet(path)

    def _table(self, name: str, frame: DataFrame) -> tuple[Row, ...]:
        """A small result table: written, and its rows."""
        return tuple(self._kept(name, frame.coalesce(1)).collect())


_INCIDENTS = (
    "id string, first_snapshot long, last_snapshot long, snapshots long, formed double, opened double, seen double, "
    "closed double, parties array<string>, processes array<string>, recurrence int"
)
_RISKS = "services array<string>, score double, full array<double>, samples long"


def _fullest(pools: Sequence[Row]) -> dict[str, tuple[int | None, float, float]]:
    """By service, the pool that is full most often."""
    found: dict[str, tuple[int | None, float, float]] = {}
    for row in pools:  # the fullest first
        found.setdefault(row.service, (row["size"], row.busy_mean, row.full_share or 0.0))
    return found
