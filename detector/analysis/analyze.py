"""Analyses one archive end to end: verdicts, incidents and counts, result tables, the report."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import pairwise
from pathlib import PurePosixPath

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from detector.analysis.counters import SnapshotTimes
from detector.analysis.days import Days
from detector.analysis.engine import Engine
from detector.analysis.findings.incidents import (
    INCIDENTS,
    NEAR_MISSES,
    definite_ends,
    near_miss_rows,
    past_incidents,
    sightings,
)
from detector.analysis.findings.pictures import IncidentDrawing, draw_incidents
from detector.analysis.findings.recorded_waits import recorded_waits
from detector.analysis.findings.risk import RISKS, risks
from detector.analysis.kernels import LEFT_OUT, Evaluate
from detector.analysis.report.sections import EPISODES_MAX, report_page
from detector.analysis.result import Analysis
from detector.analysis.result_folder import MANIFEST, CountsError, Manifest, Results, check_unoccupied
from detector.analysis.tables import SCHEMAS, totals
from detector.archive.rows.local_state_rows import Row
from detector.archive.units import Archive, open_archive
from detector.core.counting import counted
from detector.core.protocol.assembler import Outcome
from detector.core.registry import NO_SETTINGS, PredicateSettings, find_predicates
from detector.ops.files.location import absolute

PREDICATES = ("deadlock", "gridlock")
SUMMARY, REPORT = "summary.json", "report.html"
RESTARTS_MAX = 3
"""How often an analysis starts over because of compaction, which takes one day at a time and so rarely interferes twice."""


def analyze(
    engine: Engine,
    archive: Archive,
    out: str,
    predicates: Sequence[str] = PREDICATES,
    progress: Callable[[str], None] = print,
    settings: Mapping[str, PredicateSettings] = NO_SETTINGS,
    *,
    again: bool = False,
) -> Analysis:
    """Analyse ``archive`` and write the result tables (Parquet), ``summary.json`` and ``report.html`` to ``out``.

    Parameters
    ----------
    out : a directory or a URI; all workers of ``engine`` must reach it under this name.
    predicates : evaluated besides ``deadlock`` (the source of incidents and near misses) and the predicates with ``settings``.
    progress : called with a line of text at each step.
    again : also re-evaluate the days whose files have not changed since the last analysis.

    Raises
    ------
    CountsError
        If ``out`` does not hold exactly one verdict for each snapshot and predicate.
    ArchiveError
        If ``out`` contains an archive, or the results of a stream, or another analysis is writing to it.
    """
    asked = tuple(dict.fromkeys(("deadlock", *predicates, *settings)))
    out = absolute(out)
    check_unoccupied(out, own=(MANIFEST,))
    with Results(location=out).sole_writer():
        return _analyzed(engine, archive, out, asked, progress, settings, again=again)


def _analyzed(
    engine: Engine,
    archive: Archive,
    out: str,
    asked: tuple[str, ...],
    progress: Callable[[str], None],
    settings: Mapping[str, PredicateSettings],
    *,
    again: bool,
) -> Analysis:
    before = Results(location=out).last()
    before = replace(before, sources={}) if again else before
    analysis, pictures, manifest = _Run(engine, archive, Results(location=out), before, progress).run(asked, settings)
    for _ in range(RESTARTS_MAX):
        if not _compacted(archive, analysis):
            break
        progress("files were compacted during the analysis: starting over")
        archive = open_archive(archive.store.location, since=archive.since, until=archive.until)
        analysis, pictures, manifest = _Run(engine, archive, Results(location=out), before, progress).run(asked, settings)
    results = Results(location=out)
    results.commit(manifest)
    results.write_text(SUMMARY, json.dumps(asdict(analysis), indent=1, default=str) + "\n")
    results.write_text(REPORT, report_page(analysis, pictures))
    return analysis


def _compacted(archive: Archive, analysis: Analysis) -> bool:
    """Whether a left-out file was compacted after the scan, so that its rows are in another file."""
    return any(archive.store.compacted(PurePosixPath(path).parts[-3], path) for path, _ in analysis.left_out)


class _Run:
    def __init__(
        self, engine: Engine, archive: Archive, results: Results, before: Manifest, progress: Callable[[str], None]
    ) -> None:
        self._engine, self._archive, self._results, self._progress = engine, archive, results, progress
        self._days = Days(engine=engine, archive=archive, results=results, before=before)

    def run(
        self, predicates: tuple[str, ...], settings: Mapping[str, PredicateSettings]
    ) -> tuple[Analysis, dict[str, IncidentDrawing], Manifest]:
        location, reports = self._archive.store.location, self._archive.rows("reports")
        headers = self._days.headers()
        begun, ended, period = _extent(headers.ends())
        count = sum(headers.outcomes.values())
        self._progress(f"evaluating {', '.join(predicates)} on {count} snapshots")
        each = reports / max(self._archive.rows("snapshots"), 1)
        kernel = Evaluate(predicates=predicates, settings=dict(settings), results=self._results, reports_per_row=each)
        heads = self._days.verdicts(kernel)
        if self._days.kept:
            self._progress(f"keeping the results of {counted(self._days.kept, 'day')} whose files have not changed")
        unread = _unread(heads)
        verdicts = heads.filter(pc.is_valid(heads.column("predicate")))
        self._check(headers.outcomes, verdicts.num_rows, len(predicates), unreadable=bool(unread or headers.left_out))
        self._progress("incidents and near misses")
        seen = sightings(verdicts)
        near = self._table("near_misses", near_miss_rows(seen), NEAR_MISSES)
        self._progress(f"counting {reports} reports: blocked time, pools, locks, clocks, orphans")
        tally = self._days.counted(headers.ends())
        read, headless = _read_reports(tally)
        incidents = tuple(past_incidents(seen, definite_ends(verdicts), _values_by_key(tally, "process")))
        self._table("incidents", [asdict(each) for each in incidents], INCIDENTS)
        rows = totals(tally, period) | {"coverage": headers.coverage(), "missing": headers.missing()}
        tables = {name: self._table(name, rows[name], schema) for name, schema in SCHEMAS.items()}
        self._progress("risk, and the report")
        edges = [(row["service"], row["callee"], row["samples"]) for row in tables["holding"]]
        ranked = risks(edges, _fullest(tables["pools"]))
        self._table("risks", [asdict(each) for each in ranked], RISKS)
        (deadlock,) = find_predicates(("deadlock",), settings)
        pictures = draw_incidents(self._archive, incidents[-EPISODES_MAX:], deadlock)
        left_out = {each.path: each.reason for each in (*headers.left_out, *self._archive.left_out)}
        analysis = Analysis(
            location=location,
            engine=self._engine.name,
            predicates=predicates,
            snapshots=count,
            reports=read,
            begun=begun,
            ended=ended,
            period_seconds=period,
            answers=_answers(verdicts),
            incidents=incidents,
            waits={name: each.waits for name, each in pictures.items()} | recorded_waits(self._archive),
            near_misses=near,
            coverage=tables["coverage"],
            blocked=tables["blocked"],
            pools=tables["pools"],
            locks=tables["locks"],
            holding=tables["holding"],
            risks=tuple(ranked),
            orphans=len(tables["orphans"]),
            skewed=tuple(row for row in tables["clocks"] if max(row["ahead_seconds"], row["behind_seconds"]) > 0),
            silent=tables["missing"],
            left_out=tuple(sorted((left_out | unread | _values_by_key(tally, LEFT_OUT)).items())),
            reports_absent=max(0, headers.reported - (read - sum(headless.values()))),
            headless=tuple(sorted(headless)),
            absent=tuple(_number_gaps(headers.ends(), headless)),
        )
        return analysis, pictures, self._days.manifest()

    def _check(self, outcomes: Counter[str], verdicts: int, predicates: int, *, unreadable: bool) -> None:
        """Raise unless each accepted snapshot has one verdict per predicate; unreadable files excuse missing ones."""
        judged = sum(outcomes.values()) - outcomes[Outcome.REJECTED.value]
        expected = judged * predicates
        if verdicts != expected and not unreadable:
            raise CountsError(f"{verdicts} verdicts for {judged} snapshots and {predicates} predicates: {expected} expected")

    def _table(self, name: str, rows: Sequence[Row], schema: pa.Schema) -> tuple[Row, ...]:
        """Write a small result table; return its rows."""
        self._days.add(name, self._results.write(name, rows, schema))
        return tuple(rows)


def _answers(verdicts: pa.Table) -> dict[str, dict[str, int]]:
    """How often each predicate gave each answer."""
    answers: dict[str, dict[str, int]] = {}
    counts = verdicts.group_by(["predicate", "holds"]).aggregate([([], "count_all")])
    for row in counts.sort_by([("predicate", "ascending"), ("holds", "ascending")]).to_pylist():
        answers.setdefault(row["predicate"], {})[row["holds"]] = row["count_all"]
    return answers


def _unread(heads: pa.Table) -> dict[str, str]:
    rows = heads.filter(pc.is_valid(heads.column("left_out_path"))).to_pylist()
    return {row["left_out_path"]: row["left_out_reason"] for row in rows}


def _extent(ends: Mapping[str, SnapshotTimes]) -> tuple[float, float, float]:
    """Return when the first snapshot began, when the last one ended, and the median period; 0 where unknown."""
    begun = [np.sort(each.begun[~np.isnan(each.begun)]) for each in ends.values()]
    ended = [each.ended[~np.isnan(each.ended)] for each in ends.values()]
    if not sum(map(len, begun)):
        return 0.0, 0.0, 0.0
    steps = np.concatenate([np.diff(times) for times in begun])
    period = float(np.median(steps)) if len(steps) else 0.0
    return float(np.concatenate(begun).min()), float(np.concatenate([*begun, *ended]).max()), period


def _number_gaps(ends: Mapping[str, SnapshotTimes], headless: Iterable[tuple[str, int]]) -> Iterator[tuple[str, int, int]]:
    """Yield runs of snapshot numbers that have neither a row nor a report: archive, first and last.

    A detector that restarts skips numbers without any time passing, so a gap counts only if it lasted at least half as long as
    its snapshots would normally take.
    """
    reported = list(headless)
    for archive, own in sorted(ends.items()):
        known = ~np.isnan(own.begun)
        numbers, at = np.unique(own.snapshot[known], return_index=True)
        steps, seconds = np.diff(numbers), np.diff(own.begun[known][at])
        pace = float(np.median(seconds / steps)) if len(steps) else 0.0
        alone = np.unique([number for name, number in reported if name == archive])
        for place in np.flatnonzero((steps > 1) & (seconds >= steps * pace / 2)).tolist():
            low, high = numbers[place : place + 2].tolist()
            present = [low, *alone[(low < alone) & (alone < high)].astype(np.int64).tolist(), high]
            yield from ((archive, first + 1, last - 1) for first, last in pairwise(present) if last - first > 1)


def _values_by_key(tally: pa.Table, kind: str) -> dict[str, str]:
    """Map ``one`` to ``two`` for one kind of tally rows: process to service, or left-out file to reason."""
    rows = tally.filter(pc.equal(tally.column("kind"), kind)).select(["one", "two"]).to_pylist()
    return {row["one"]: row["two"] for row in rows}


def _read_reports(tally: pa.Table) -> tuple[int, dict[tuple[str, int], int]]:
    """Count the reports read: in all, and for each snapshot (archive and number) that has no row in ``snapshots``."""
    reports = pc.sum(tally.filter(pc.equal(tally.column("kind"), "process")).column("samples")).as_py() or 0
    alone = tally.filter(pc.equal(tally.column("kind"), "headless")).select(["archive", "snapshot", "samples"])
    return reports, {(row["archive"], row["snapshot"]): row["samples"] for row in alone.to_pylist()}


def _fullest(pools: Sequence[Row]) -> dict[str, tuple[int | None, float, float]]:
    """Map each service to its pool that is full most often."""
    found: dict[str, tuple[int | None, float, float]] = {}
    for row in pools:  # sorted, the fullest first
        found.setdefault(row["service"], (row["size"], row["busy_mean"], row["full_share"] or 0.0))
    return found
