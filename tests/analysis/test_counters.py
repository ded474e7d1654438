"""The tally equals the sums over the reports, however these are divided into whole snapshots."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from detector.analysis.counters import TALLIED, TALLY, SnapshotTimes, merged, tallied
from detector.analysis.findings.risk import risks
from detector.analysis.groups import Real
from detector.analysis.tables import totals
from stilltrue.protocol.report import ResourceTarget
from tests.synthetic.random_snapshots import EPOCH_SECONDS, Judged, RandomSnapshot, WorldShape, judged, random_snapshots

NUMBER = 60


@pytest.fixture(scope="module")
def run() -> Judged:
    return judged(random_snapshots(3, NUMBER, WorldShape(processes=5, calls=9)), [])


@pytest.fixture(scope="module")
def ends() -> dict[str, SnapshotTimes]:
    numbers = np.arange(1, NUMBER + 1)
    begun: Real = EPOCH_SECONDS + 60.0 * numbers.astype(np.float64)
    return {"": SnapshotTimes(numbers, begun, begun + 0.25)}


def _sorted(tally: pa.Table) -> pa.Table:
    return tally.sort_by([(name, "ascending") for name in ("kind", "one", "two", "archive", "snapshot")])


@pytest.mark.parametrize("cuts", [(), (7,), (1, 2, 30, 59)])
def test_any_division_into_whole_snapshots_gives_the_same_counts(
    run: Judged, ends: dict[str, SnapshotTimes], cuts: tuple[int, ...]
) -> None:
    numbers = run.reports.column("snapshot")
    edges = [0, *cuts, NUMBER]
    parts = [
        tallied(run.reports.filter(pc.and_(pc.greater(numbers, low), pc.less_equal(numbers, high))), ends)
        for low, high in pairwise(edges)
    ]
    assert _sorted(merged(parts[::-1])).equals(_sorted(tallied(run.reports, ends)))


def test_counts_are_those_of_the_reports(run: Judged, ends: dict[str, SnapshotTimes]) -> None:
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


def test_a_wrong_clock_is_reported_with_its_error(run: Judged, ends: dict[str, SnapshotTimes]) -> None:
    at = run.reports.schema.get_field_index("cut_at")
    late = run.reports.set_column(
        at, "cut_at", pa.array(EPOCH_SECONDS + 60.0 * run.reports.column("snapshot").to_numpy() + 2.0)
    )
    clocks = totals(tallied(late, ends), 60.0)["clocks"]
    assert {(row["ahead_seconds"], row["behind_seconds"], row["delay_mean_seconds"]) for row in clocks} == {(1.75, 0.0, 2.0)}


def test_an_orphan_is_reported_with_its_snapshot(run: Judged, ends: dict[str, SnapshotTimes]) -> None:
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


def test_counting_nothing_gives_an_empty_tally(run: Judged, ends: dict[str, SnapshotTimes]) -> None:
    assert tallied(run.reports.slice(0, 0), ends).equals(TALLY.empty_table())
    assert set(TALLIED.names) <= set(run.reports.column_names)


def test_two_archives_with_equal_numbers_are_counted_apart(run: Judged, ends: dict[str, SnapshotTimes]) -> None:
    """The second detector's clock is an hour on; its processes are others."""
    at, place = run.reports.schema.get_field_index("archive"), run.reports.schema.get_field_index("process")
    names = pc.binary_join_element_wise("other-", run.reports.column("process"), "")
    other = run.reports.set_column(at, "archive", pa.array(["b"] * run.reports.num_rows)).set_column(place, "process", names)
    later = SnapshotTimes(ends[""].snapshot, ends[""].begun + 3600.0, ends[""].ended + 3600.0)
    both = totals(tallied(pa.concat_tables([run.reports, other]), {**ends, "b": later}), 60.0)
    behind = {row["process"]: row["behind_seconds"] for row in both["clocks"]}
    alone = totals(tallied(run.reports, ends), 60.0)["clocks"]
    for row in alone:
        assert behind[row["process"]] == row["behind_seconds"]
        assert behind[f"other-{row['process']}"] == row["behind_seconds"] + 3600.0
    assert len(behind) == 2 * len(alone)
    assert both["orphans"] == []


def _literal(process: str, at: int, **told: object) -> dict[str, object]:
    """A report of a service's only process, in snapshot ``at``, cut 0.5 s after its beginning at 60 s times ``at``."""
    begun = 60.0 * at
    nothing: dict[str, object] = {name: [] for name in ("made", "served", "seen", "pools", "waits", "resolved")}
    known = {"snapshot": at, "begun": begun, "cut_at": begun + 0.5, "incarnation": 1, "next_number": 10}
    return nothing | known | {"process": f"{process}-0", "service": process} | told


def test_every_measure_of_a_few_reports_matches_manual_counts() -> None:
    workers = [{"name": "w", "size": 2, "queued": 3}, {"name": "endless", "size": None, "queued": 0}]
    busy = [{"party": "a-0/x#1", "serving": True, "pool": "w"}, {"party": "a-0/y#2", "serving": True, "pool": "w"}]
    queued = {"party": "a-0/z#3", "serving": False, "pool": "w"}
    unpooled = {"party": "a-0/u#4", "serving": True, "pool": ""}
    made = [
        {"servers": {"b-0": 1}, "party": "a-0/x#1", "doubtful": False},  # holds a worker of w
        {"servers": {"b-0": 1}, "party": "a-0/y#2", "doubtful": True},  # in doubt: no wait any more
        {"servers": {"b-0": 1}, "party": "a-0/u#4", "doubtful": False},  # occupies no pool
        {"servers": {"b-0": 1}, "party": "a-0/z#3", "doubtful": False},  # is queued itself
    ]
    rows = [
        _literal("a", 1, pools=workers, served=[*busy, queued, unpooled], made=made),
        _literal("a", 2, pools=[{"name": "w", "size": 2, "queued": 0}], served=busy[:1]),
        _literal("b", 1, resolved=[{"waiter": "b-0/m#1", "since": 10.0}, {"waiter": "b-0/m#2", "since": 40.0}]),
        _literal(
            "b", 2, resolved=[{"waiter": "b-0/m@a-0", "since": None}, {"waiter": "b-0/n#2", "since": 119.0}], cut_at=119.0
        ),
        _literal(
            "c", 1, waits=[{"among": [{"resource": "r"}, {"resource": None}]}, {"among": [{"resource": "r"}]}], cut_at=63.0
        ),
        _literal("c", 2, seen=[{"caller": {"process": name, "incarnation": n}, "highest": top} for name, n, top in SEEN]),
    ]
    ends = {"": SnapshotTimes(np.asarray([1, 2]), np.asarray([60.0, 120.0]), np.asarray([61.0, np.nan]))}
    found = totals(tallied(pa.Table.from_pylist(rows, schema=TALLIED), ends), 60.0)
    pools = {(row["service"], row["pool"]): row for row in found["pools"]}
    assert pools["a", "w"] == {
        "service": "a", "pool": "w", "size": 2, "samples": 2, "busy_mean": 1.5, "busy_max": 2,
        "queued_mean": 1.5, "queued_max": 3, "full_share": 0.5,
    }  # fmt: skip
    assert (pools["a", "endless"]["size"], pools["a", "endless"]["full_share"]) == (None, None)
    assert found["holding"] == [{"service": "a", "callee": "b", "samples": 1}]
    assert [tuple(row.values()) for row in found["blocked"]] == [("b", "m", 3, 180.0, 50.0), ("b", "n", 1, 60.0, 1.0)]
    assert found["locks"] == [{"resource": "r", "samples": 2, "waited_seconds": 120.0}]
    clocks = {
        row["process"]: (row["ahead_seconds"], row["behind_seconds"], row["delay_mean_seconds"]) for row in found["clocks"]
    }
    assert clocks == {"a-0": (0.0, 0.0, 0.5), "b-0": (0.0, 1.0, -0.25), "c-0": (2.0, 0.0, 1.75)}
    assert [(row["process"], row["highest"], row["next_number"]) for row in found["orphans"]] == [("a-0", 10, 10)]


def _worker(process: str, server: str | None, **served: object) -> dict[str, object]:
    """The report of a process whose only worker serves one call and makes the process's first one, number 1."""
    party = f"{process}/x#1"
    call = {"number": 1, "servers": {server: 1} if server else {}, "party": party, "doubtful": False}
    taken = {"party": party, "serving": True, "pool": "w", "number": 1, **served}
    return {"made": [call], "served": [taken], "pools": [{"name": "w", "size": 1, "queued": 0}]}


def test_first_calls_count_at_the_process_that_has_them() -> None:
    """Two programs deadlock with the first calls they ever make: no server has answered on any channel."""
    by_a, by_b = ({"process": name, "incarnation": 1} for name in ("a-0", "b-0"))
    for replica in (None, "a-1"):  # nor does it matter who has answered: b's call is where a-0 says that it is
        rows = [
            _literal("a", 1, **_worker("a-0", None, caller=by_b)),
            _literal("b", 1, **_worker("b-0", replica, caller=by_a)),
        ]
        found = totals(tallied(pa.Table.from_pylist(rows, schema=TALLIED), {}), 60.0)
        edges = [(row["service"], row["callee"], row["samples"]) for row in found["holding"]]
        assert edges == [("a", "b", 1), ("b", "a", 1)]
        assert [risk.services for risk in risks(edges, dict.fromkeys("ab", (1, 1.0, 1.0)))] == [("a", "b")]


def test_a_first_call_at_an_unknown_process_is_not_counted() -> None:
    others = ({"process": "a-0", "incarnation": 2}, {"process": "c-0", "incarnation": 1}, None)
    for caller in others:  # of another run, of a process without a report, without a stamp
        rows = [_literal("a", 1, **_worker("a-0", None)), _literal("b", 1, **_worker("b-0", None, caller=caller))]
        assert totals(tallied(pa.Table.from_pylist(rows, schema=TALLIED), {}), 60.0)["holding"] == []


SEEN = (("a-0", 1, 10), ("b-0", 1, 9), ("b-0", 2, 99), ("gone-0", 1, 99))
"""Of callers that are to send number 10 next: one too high, one right, one of another run, one that did not report."""
