"""A tally says what the reports add up to, however they are cut into whole snapshots."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from detector.analysis.counters import TALLIED, TALLY, Ends, Real, merged, tallied
from detector.analysis.tables import totals
from detector.synthetic.snapshots import EPOCH_SECONDS, Judged, RandomSnapshot, WorldShape, judged, random_snapshots
from stilltrue.protocol.report import ResourceTarget

NUMBER = 60


@pytest.fixture(scope="module")
def run() -> Judged:
    return judged(random_snapshots(3, NUMBER, WorldShape(processes=5, calls=9)), [])


@pytest.fixture(scope="module")
def ends() -> dict[str, Ends]:
    numbers = np.arange(1, NUMBER + 1)
    begun: Real = EPOCH_SECONDS + 60.0 * numbers.astype(np.float64)
    return {"": Ends(numbers, begun, begun + 0.25)}


def _sorted(tally: pa.Table) -> pa.Table:
    return tally.sort_by([(name, "ascending") for name in ("kind", "one", "two", "archive", "snapshot")])


@pytest.mark.parametrize("cuts", [(), (7,), (1, 2, 30, 59)])
def test_any_cut_into_whole_snapshots_gives_the_same(run: Judged, ends: dict[str, Ends], cuts: tuple[int, ...]) -> None:
    numbers = run.reports.column("snapshot")
    edges = [0, *cuts, NUMBER]
    parts = [
        tallied(run.reports.filter(pc.and_(pc.greater(numbers, low), pc.less_equal(numbers, high))), ends)
        for low, high in pairwise(edges)
    ]
    assert _sorted(merged(parts[::-1])).equals(_sorted(tallied(run.reports, ends)))


def test_counts_are_those_of_the_reports(run: Judged, ends: dict[str, Ends]) -> None:
    reports = [report for made in run.made for report in made.assembled.reports.values()]
    found = totals(tallied(run.reports, ends), 60.0)
    locks = Counter(
        target.resource
        for report in reports
        for wait in report.waits
        for target in wait.among
        if isinstance(target, ResourceTarget)
    )
    assert {row["resource"]: row["samples"] for row in found["locks"]} == locks
    assert all(row["waited_seconds"] == 60.0 * row["samples"] for row in found["locks"])
    busy: Counter[str] = Counter()
    for report in reports:
        busy[report.process.service] += sum(served.serving for served in report.served)
    assert {row["service"]: round(row["busy_mean"] * row["samples"]) for row in found["pools"]} == busy
    waits = sum(len(made.assembled.snapshot.waits) for made in run.made)
    told = sum(row["samples"] for row in found["blocked"])
    gone = sum(process in made.assembled.snapshot.missing for made in run.made for process in _waiters(made))
    assert told == waits - gone
    assert found["orphans"] == []


def _waiters(made: RandomSnapshot) -> list[str]:
    waits = made.assembled.snapshot.waits
    return [name.split("/")[0] for name in waits.named(waits.waiter)]


def test_a_clock_that_is_off_is_told_by_how_much(run: Judged, ends: dict[str, Ends]) -> None:
    at = run.reports.schema.get_field_index("cut_at")
    late = run.reports.set_column(
        at, "cut_at", pa.array(EPOCH_SECONDS + 60.0 * run.reports.column("snapshot").to_numpy() + 2.0)
    )
    clocks = totals(tallied(late, ends), 60.0)["clocks"]
    assert {(row["ahead_seconds"], row["behind_seconds"], row["delay_mean_seconds"]) for row in clocks} == {(1.75, 0.0, 2.0)}


def test_an_orphan_is_told_with_its_snapshot(run: Judged, ends: dict[str, Ends]) -> None:
    at = run.reports.schema.get_field_index("next_number")
    nothing_sent = run.reports.set_column(at, "next_number", pa.array(np.ones(run.reports.num_rows, np.int64)))
    orphans = totals(tallied(nothing_sent, ends), 60.0)["orphans"]
    wanted = {
        (made.assembled.snapshot.ref.id, name, seen.caller.process)
        for made in run.made
        for name, report in made.assembled.reports.items()
        for seen in report.seen
        if seen.caller.process in made.assembled.reports
    }
    assert wanted
    assert {(row["snapshot"], row["server"], row["process"]) for row in orphans} == wanted


def test_of_nothing_there_is_an_empty_tally(run: Judged, ends: dict[str, Ends]) -> None:
    assert tallied(run.reports.slice(0, 0), ends).equals(TALLY.empty_table())
    assert set(TALLIED.names) <= set(run.reports.column_names)


def test_two_archives_with_equal_numbers_are_counted_apart(run: Judged, ends: dict[str, Ends]) -> None:
    """The second detector's clock is an hour on; its processes are others."""
    at, place = run.reports.schema.get_field_index("archive"), run.reports.schema.get_field_index("process")
    names = pc.binary_join_element_wise("other-", run.reports.column("process"), "")
    other = run.reports.set_column(at, "archive", pa.array(["b"] * run.reports.num_rows)).set_column(place, "process", names)
    later = Ends(ends[""].snapshot, ends[""].begun + 3600.0, ends[""].ended + 3600.0)
    both = totals(tallied(pa.concat_tables([run.reports, other]), {**ends, "b": later}), 60.0)
    behind = {row["process"]: row["behind_seconds"] for row in both["clocks"]}
    alone = totals(tallied(run.reports, ends), 60.0)["clocks"]
    for row in alone:
        assert behind[row["process"]] == row["behind_seconds"]
        assert behind[f"other-{row['process']}"] == row["behind_seconds"] + 3600.0
    assert len(behind) == 2 * len(alone)
    assert both["orphans"] == []
