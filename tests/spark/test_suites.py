"""The published suites from whole files, shuffled reports and as a stream: the service's verdicts, and the right ones.

The third suite, waits-sample.jsonl, goes through a live detector in test_live_stream.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from detector.archive.rows.row_decoder import verdict_of
from detector.archive.units import open_archive
from detector.core.protocol.assembler import Outcome
from detector.core.registry import find_predicate
from detector.service.storage.archive_sink import FOLDER
from detector.spark.batch import table, verdicts_of_archive, verdicts_of_reports
from detector.spark.streaming.pipeline import archive_stream, start, verdicts
from detector.spark.streaming.plan import StreamPlan
from stilltrue.model import Holds, ProcessName, Verdict
from tests.external.cos418 import RUNS, SUITE, goldens, played
from tests.external.ewd998 import TRACE, Trace, read_trace, terminated
from tests.external.ewd998_run import AT_ONCE, Manner, Taken, play
from tests.external.shared import published
from tests.synthetic.random_snapshots import EPOCH_SECONDS, Judged, RandomSnapshot, judged

HALF_A_YEAR_SECONDS = 180 * 86_400.0
Way = Callable[[SparkSession, Path, Sequence[str]], list[Verdict]]


def _sorted(frame: DataFrame, predicates: Sequence[str]) -> list[Verdict]:
    order = {name: at for at, name in enumerate(predicates)}
    found = [verdict_of(row.asDict(recursive=True)) for row in frame.collect()]
    return sorted(found, key=lambda verdict: (verdict.snapshot.id or 0, order[verdict.predicate]))


def whole_files(spark: SparkSession, data: Path, predicates: Sequence[str]) -> list[Verdict]:
    return _sorted(verdicts_of_archive(spark, open_archive(str(data / FOLDER)), predicates), predicates)


def shuffled_reports(spark: SparkSession, data: Path, predicates: Sequence[str]) -> list[Verdict]:
    """Some of them twice."""
    archive = open_archive(str(data / FOLDER))
    reports = table(spark, archive, "reports")
    doubled = reports.unionByName(reports.sample(fraction=0.3, seed=7)).repartition(5).orderBy(F.rand(7))
    return _sorted(verdicts_of_reports(doubled, predicates, headers=table(spark, archive, "snapshots")), predicates)


def streamed(spark: SparkSession, data: Path, predicates: Sequence[str]) -> list[Verdict]:
    plan = StreamPlan(
        out=str(data / "out"),
        predicates=tuple(predicates),
        give_up_seconds=HALF_A_YEAR_SECONDS,
        bytes_per_batch_max=200_000,
        buckets=2,
    )
    location = str(data / FOLDER)
    query = start(archive_stream(spark, location, plan), plan, location=location, once=True)
    assert query.awaitTermination(300)
    assert query.exception() is None
    return _sorted(verdicts(spark, plan), predicates)


WAYS: list[Way] = [whole_files, shuffled_reports, streamed]


@pytest.fixture(scope="module")
def trace() -> Trace:
    return read_trace(published(TRACE))


@pytest.fixture(scope="module")
def taken(trace: Trace) -> list[Taken]:
    """Every prefix of a linear extension; cuts made by marks that come at any time; and some of these without all reports."""
    spread, lossy = Manner(marks_share=0.3), Manner(marks_share=0.3, lost_share=0.2)
    return [
        each
        for seed, manner in enumerate((AT_ONCE, spread, spread, lossy))
        for each in play(trace, Random(seed), manner, began=EPOCH_SECONDS + seed * 86_400)
    ]


@pytest.fixture(scope="module")
def trace_run(taken: list[Taken]) -> Judged:
    return judged([each.made for each in taken], [find_predicate("termination"), find_predicate("quiescence")])


@pytest.fixture(scope="module")
def trace_data(trace_run: Judged, archived: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    data: Path = tmp_path_factory.mktemp("ewd998")
    archived(trace_run, data, 0, len(trace_run.made), reports_max=900)
    return data


@pytest.mark.longer
@pytest.mark.parametrize("way", WAYS)
def test_termination_at_the_cuts_of_the_published_trace(
    spark: SparkSession, trace: Trace, taken: list[Taken], trace_run: Judged, trace_data: Path, way: Way
) -> None:
    found = way(spark, trace_data, ("termination", "quiescence"))
    assert found == list(trace_run.verdicts)
    whole = [
        (verdict, each)
        for verdict, each in zip(found[::2], taken, strict=True)
        if each.made.assembled.outcome is Outcome.COMPLETE
    ]
    assert [verdict.holds is Holds.TRUE for verdict, _ in whole] == [terminated(trace, each.cut) for _, each in whole]
    assert {verdict.holds for verdict in found[::2]} == set(Holds)
    assert len({each.cut for _, each in whole}) > 1000


@pytest.fixture(scope="module")
def tokens() -> list[tuple[RandomSnapshot, int]]:
    """The golden snapshots, and each with a token too few or too many; and how many tokens it has more than it should."""
    suite = published(SUITE)
    made = []
    for golden in (golden for run in RUNS for golden in goldens(suite, run)):
        beside = played(suite, golden.run, golden.snapshot).beside
        richest = ProcessName(max(golden.states, key=golden.states.__getitem__))
        made += [(beside.assembled(), 0), (beside.with_tokens(richest, 1), 1)]
        if golden.states[richest]:
            made.append((beside.with_tokens(richest, -1), -1))
        if golden.messages:
            source, target, _ = golden.messages[-1]
            way = ProcessName(source), ProcessName(target)
            made += [(beside.with_tokens_on_the_way(*way, more), more) for more in (-1, 1)]
    return made


@pytest.mark.longer
@pytest.mark.parametrize("way", WAYS)
def test_tokens_of_the_published_snapshots_are_conserved(
    spark: SparkSession, tokens: list[tuple[RandomSnapshot, int]], archived: Any, tmp_path: Path, way: Way
) -> None:
    """The pipeline asks predicates as they come, so for one token: its share of all there are is what each has of it."""
    names = ("token-lost", "token-duplicated")
    run = judged([made for made, _ in tokens], [find_predicate(name) for name in names])
    archived(run, tmp_path, 0, len(tokens))
    found = way(spark, tmp_path, names)
    assert found == list(run.verdicts)
    wanted = [[Holds.TRUE if more < 0 else Holds.FALSE, Holds.TRUE if more > 0 else Holds.FALSE] for _, more in tokens]
    assert [[lost.holds, doubled.holds] for lost, doubled in zip(found[::2], found[1::2], strict=True)] == wanted
    assert sum(more == 0 for _, more in tokens) == 21
