"""One archive analysed from end to end: verdicts, what follows from them, result tables, the report."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, Row, SparkSession

from detector.analysis.counters import TALLY, Ends
from detector.analysis.coverage import read_headers
from detector.analysis.tables import SCHEMAS, totals
from detector.archive.schema import REAL, SMALL, TEXT, WHOLE
from detector.core.registry import NO_SETTINGS, Settings
from detector.spark import trends
from detector.spark.incidents import PastIncident, past_incidents
from detector.spark.report.sections import write_report
from detector.spark.risk import Risk, risks
from detector.spark.tables import Archive, open_archive
from detector.spark.tally import LEFT_OUT, tally_of_archive
from detector.spark.verdicts import verdicts_of_archive

PREDICATES = ("deadlock", "gridlock")
SUMMARY, REPORT = "summary.json", "report.html"

AGAIN_MAX = 3
"""Compaction works on a day at a time; only one that follows close behind an analysis meets it more than once."""


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

    @property
    def near_said(self) -> str:
        """What the near misses are called, after their number: at how many sets of processes they were."""
        places = len({tuple(row.processes) for row in self.near_misses})
        where = f" in {places} place{'s' * (places > 1)}" if places else ""
        return f"near miss{'es' * (len(self.near_misses) != 1)}{where}"


def analyze(
    spark: SparkSession,
    archive: Archive,
    out: Path,
    predicates: Sequence[str] = PREDICATES,
    progress: Callable[[str], None] = print,
    settings: Mapping[str, Settings] = NO_SETTINGS,
) -> Analysis:
    """Analyse ``archive`` and write the result tables (Parquet), ``summary.json`` and ``report.html`` to ``out``.

    ``deadlock`` is always among the predicates: incidents and near misses come from it; and so is who has ``settings``.
    ``progress`` is told each step.
    """
    asked = tuple(dict.fromkeys(("deadlock", *predicates, *settings)))
    out.mkdir(parents=True, exist_ok=True)
    for told in (SUMMARY, REPORT):  # of an earlier time: cut short, this one leaves none that says something else
        (out / told).unlink(missing_ok=True)
    analysis = _Steps(spark, archive, out, progress).run(asked, settings)
    for _ in range(AGAIN_MAX):
        if not _compacted(archive, analysis):
            break
        progress("files were compacted meanwhile: once more")
        archive = open_archive(archive.store.location, since=archive.since, until=archive.until)
        analysis = _Steps(spark, archive, out, progress).run(asked, settings)
    summary = {**asdict(analysis), **{name: [_plain(row) for row in getattr(analysis, name)] for name in _ROWS}}
    (out / SUMMARY).write_text(json.dumps(summary, indent=1, default=str) + "\n", encoding="utf-8")
    write_report(analysis, out / REPORT)
    return analysis


_ROWS = ("near_misses", "coverage", "blocked", "pools", "locks", "holding", "skewed", "silent")


def _compacted(archive: Archive, analysis: Analysis) -> bool:
    """Whether a file that is left out was compacted after it had been looked at: its rows are there all the same."""
    return any(archive.store.compacted(PurePosixPath(path).parts[-3], path) for path, _ in analysis.left_out)


def _plain(row: Row) -> dict[str, Any]:
    return row.asDict(recursive=True)


class _Steps:
    def __init__(self, spark: SparkSession, archive: Archive, out: Path, progress: Callable[[str], None]) -> None:
        self._spark, self._archive, self._out, self._progress = spark, archive, out, progress

    def run(self, predicates: tuple[str, ...], settings: Mapping[str, Settings]) -> Analysis:
        count = self._archive.rows("snapshots")
        headers = read_headers(self._archive.store, self._archive.files("snapshots"))
        begun, ended, period = _extent(headers.ends())
        self._progress(f"evaluating {', '.join(predicates)} on {count} snapshots")
        verdicts = self._evaluated(predicates, settings)
        answers, definite, unread = _answers(verdicts)
        self._progress("incidents and near misses")
        seen = [row.asDict() for row in trends.sightings(verdicts).collect()]
        near = self._table("near_misses", _near_misses(seen), NEAR_MISSES)
        self._progress(f"counting {self._archive.rows('reports')} reports: blocked time, pools, locks, clocks, orphans")
        counted = tally_of_archive(self._spark, self._archive, headers.ends()).toArrow().cast(TALLY)
        incidents = tuple(past_incidents(_cores(seen), definite, _services(counted)))
        self._write("incidents", [asdict(each) for each in incidents], INCIDENTS)
        rows = totals(counted, period) | {"coverage": headers.coverage(), "missing": headers.missing()}
        tables = {name: self._table(name, rows[name], schema) for name, schema in SCHEMAS.items()}
        self._progress("risk, and the report")
        ranked = risks([(row.service, row.callee, row.samples) for row in tables["holding"]], _fullest(tables["pools"]))
        self._write("risks", [asdict(each) for each in ranked], RISKS)
        left_out = {each.path: each.reason for each in (*headers.left_out, *self._archive.left_out)}
        left_out |= unread | {row["one"]: row["two"] for row in counted.to_pylist() if row["kind"] == LEFT_OUT}
        left_out = {path: reason.removeprefix(f"{path}: ") for path, reason in left_out.items()}
        return Analysis(
            location=self._archive.store.location,
            predicates=predicates,
            snapshots=count,
            reports=self._archive.rows("reports"),
            begun=begun,
            ended=ended,
            period_seconds=period,
            answers=answers,
            incidents=incidents,
            near_misses=near,
            coverage=tables["coverage"],
            blocked=tables["blocked"],
            pools=tables["pools"],
            locks=tables["locks"],
            holding=tables["holding"],
            risks=tuple(ranked),
            orphans=len(rows["orphans"]),
            skewed=tuple(row for row in tables["clocks"] if max(row.ahead_seconds, row.behind_seconds) > 0),
            silent=tables["missing"],
            left_out=tuple(sorted(left_out.items())),
        )

    def _evaluated(self, predicates: tuple[str, ...], settings: Mapping[str, Settings]) -> DataFrame:
        """The verdicts written to their result table, and read back from there."""
        frame = verdicts_of_archive(self._spark, self._archive, predicates, settings)
        path = str(self._out / "verdicts")
        frame.write.mode("overwrite").parquet(path)
        return self._spark.read.schema(frame.schema).parquet(path)

    def _table(self, name: str, rows: Sequence[dict[str, Any]], schema: pa.Schema) -> tuple[Row, ...]:
        """A small result table: written, and its rows."""
        self._write(name, rows, schema)
        return tuple(Row(**row) for row in rows)

    def _write(self, name: str, rows: Sequence[dict[str, Any]], schema: pa.Schema) -> None:
        """A job of Spark's for each of these tables would take longer than all else of a small archive."""
        folder = self._out / name
        if folder.exists():
            shutil.rmtree(folder)
        folder.mkdir()
        pq.write_table(pa.Table.from_pylist(list(rows), schema=schema), folder / "part-00000.parquet")


def _answers(verdicts: DataFrame) -> tuple[dict[str, dict[str, int]], list[tuple[int, float]], dict[str, str]]:
    """How often each predicate gave each answer; the snapshots with a definite one about deadlock; files left out, and why."""
    heads = verdicts.select("snapshot", "predicate", "holds", "ended", "left_out_path", "left_out_reason").toArrow()
    unread = heads.filter(pc.is_valid(heads.column("left_out_path"))).to_pylist()
    good = heads.filter(pc.is_valid(heads.column("predicate")))
    answers: dict[str, dict[str, int]] = {}
    counts = good.group_by(["predicate", "holds"]).aggregate([([], "count_all")])
    for row in counts.sort_by([("predicate", "ascending"), ("holds", "ascending")]).to_pylist():
        answers.setdefault(row["predicate"], {})[row["holds"]] = row["count_all"]
    told = pc.and_(pc.equal(good.column("predicate"), "deadlock"), pc.not_equal(good.column("holds"), "undetermined"))
    definite = good.filter(told).sort_by("snapshot")
    times = pc.fill_null(definite.column("ended"), 0.0).to_pylist()
    left_out = {row["left_out_path"]: row["left_out_reason"] for row in unread}
    return answers, list(zip(definite.column("snapshot").to_pylist(), times, strict=True)), left_out


def _extent(ends: Ends) -> tuple[float, float, float]:
    """When the first snapshot began, when the last one ended, and the usual time from one to the next; 0 where unknown."""
    begun = np.sort(ends.begun[~np.isnan(ends.begun)])
    ended = ends.ended[~np.isnan(ends.ended)]
    first, last = begun.min(initial=np.inf), np.concatenate((begun, ended)).max(initial=-np.inf)
    period = np.median(np.diff(begun)) if len(begun) > 1 else 0.0
    return (float(first), float(last), float(period)) if len(begun) else (0.0, 0.0, 0.0)


def _services(counted: pa.Table) -> dict[str, str]:
    """Each process's service."""
    return {row["one"]: row["two"] for row in counted.to_pylist() if row["kind"] == "process"}


def _cores(seen: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted((row for row in seen if row["kind"] == "core"), key=lambda row: (row["first_snapshot"], row["id"]))


def _near_misses(seen: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """A row an episode, with the processes that would have been in the core; the longest first."""
    found = [
        {
            "processes": row["processes"],
            "snapshots": row["snapshots"],
            "first": row["first"],
            "last": row["last"],
            "parties": row["parties_max"],
            "saved_by": row["saved_by"],
        }
        for row in seen
        if row["kind"] == "near miss"
    ]
    return sorted(found, key=lambda row: (-row["snapshots"], row["processes"], row["first"]))


INCIDENTS = pa.schema(
    [
        ("id", TEXT),
        ("first_snapshot", WHOLE),
        ("last_snapshot", WHOLE),
        ("snapshots", WHOLE),
        *((name, REAL) for name in ("formed", "opened", "seen", "closed")),
        ("parties", pa.list_(TEXT)),
        ("processes", pa.list_(TEXT)),
        ("services", pa.list_(TEXT)),
        ("recurrence", SMALL),
    ]
)
NEAR_MISSES = pa.schema(
    [
        ("processes", pa.list_(TEXT)),
        ("snapshots", WHOLE),
        ("first", REAL),
        ("last", REAL),
        ("parties", WHOLE),
        ("saved_by", TEXT),
    ]
)
RISKS = pa.schema([("services", pa.list_(TEXT)), ("score", REAL), ("full", pa.list_(REAL)), ("samples", WHOLE)])


def _fullest(pools: Sequence[Row]) -> dict[str, tuple[int | None, float, float]]:
    """By service, the pool that is full most often."""
    found: dict[str, tuple[int | None, float, float]] = {}
    for row in pools:  # the fullest first
        found.setdefault(row.service, (row["size"], row.busy_mean, row.full_share or 0.0))
    return found
