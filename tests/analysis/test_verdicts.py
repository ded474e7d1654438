"""Verdicts on a batch are the service's, whatever the batch; a failing predicate affects no other."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from detector.analysis.verdicts import WAIT_COLUMNS, columns_for, verdicts_on
from detector.archive.rows.row_decoder import verdict_of
from detector.archive.rows.row_encoder import snapshot_row
from detector.archive.rows.schema import SNAPSHOTS
from detector.core.protocol.assembler import Outcome
from detector.core.registry import find_predicate
from detector.core.snapshot import Snapshot
from detector.predicates.deadlock import Deadlock
from stilltrue.model import Holds, Verdict
from tests.synthetic.random_snapshots import Judged


@pytest.mark.longer
@pytest.mark.slow
@pytest.mark.parametrize("size", [pytest.param(100, marks=pytest.mark.not_in_ci), 5000])
def test_thousands_of_snapshots_in_batches_give_the_services_verdicts(long_run: Judged, size: int) -> None:
    batches = [long_run.snapshots.slice(at, size) for at in range(0, long_run.snapshots.num_rows, size)]
    got = [verdict_of(row) for batch in batches for row in verdicts_on(batch, long_run.predicates).to_pylist()]
    assert got == list(long_run.verdicts)


@pytest.mark.parametrize("size", [7, 2000])
def test_batches_of_any_size_give_the_services_verdicts(run: Judged, size: int) -> None:
    batches = [run.snapshots.slice(at, size) for at in range(0, run.snapshots.num_rows, size)]
    got = [verdict_of(row) for batch in batches for row in verdicts_on(batch, run.predicates).to_pylist()]
    assert got == list(run.verdicts)


def test_the_columns_of_waits_suffice_for_predicates_about_waits(run: Judged) -> None:
    blocked = [find_predicate("deadlock"), find_predicate("gridlock")]
    assert columns_for(blocked) == WAIT_COLUMNS
    assert columns_for([*blocked, find_predicate("termination")]) == tuple(SNAPSHOTS.names)
    got = [verdict_of(row) for row in verdicts_on(run.snapshots.select(WAIT_COLUMNS), blocked).to_pylist()]
    assert got == [verdict for verdict in run.verdicts if verdict.predicate in {"deadlock", "gridlock"}]


def test_a_rejected_snapshot_has_no_verdict(run: Judged) -> None:
    first = run.made[0]
    rejected = snapshot_row(replace(first.assembled, outcome=Outcome.REJECTED, orphans=("seen, not sent",)), first.members)
    rows = pa.Table.from_pylist([rejected, snapshot_row(run.made[1].assembled, run.made[1].members)], schema=SNAPSHOTS)
    assert verdicts_on(rows, [Deadlock()]).column("snapshot").to_pylist() == [2]
    assert verdicts_on(rows.slice(0, 1), [Deadlock()]).num_rows == 0
    assert verdicts_on(rows.slice(0, 0), [Deadlock()]).num_rows == 0


def test_a_failing_predicate_affects_only_its_own_answer(run: Judged) -> None:
    class Broken:
        name = "broken"
        treats_missing = treats_forgotten = True

        def evaluate(self, snapshot: Snapshot) -> Verdict:
            raise RuntimeError("no idea")

    got = [verdict_of(row) for row in verdicts_on(run.snapshots.slice(0, 20), [Broken(), Deadlock()]).to_pylist()]
    assert [verdict for verdict in got if verdict.predicate == "deadlock"] == [
        verdict for verdict in run.verdicts if verdict.predicate == "deadlock"
    ][:20]
    broken = [verdict for verdict in got if verdict.predicate == "broken"]
    assert {(verdict.holds, verdict.witness.kind) for verdict in broken} == {(Holds.UNDETERMINED, "failed")}
    assert "no idea" in broken[0].witness.text


def test_the_random_snapshots_are_varied(long_run: Judged) -> None:
    told = {(verdict.predicate, verdict.holds.value, verdict.witness.kind) for verdict in long_run.verdicts}
    assert ("deadlock", "true", "knot") in told
    for predicate in ("deadlock", "gridlock"):
        assert {
            (predicate, "true", "cycle"),
            (predicate, "false", "free"),
            (predicate, "undetermined", "missing"),
            (predicate, "undetermined", "unconfirmed"),
        } <= told
