"""Reports in any order, some duplicated, give exactly the snapshots that the detector assembled."""

from __future__ import annotations

from random import Random

import pyarrow as pa
import pytest

from detector.analysis.assembly import WAIT_REPORT_COLUMNS, _guessed_names, assembled, header_rows
from detector.analysis.verdicts import verdicts_on
from detector.archive.rows.row_decoder import snapshot_of, verdict_of
from detector.core.registry import find_predicate
from stilltrue.model import Holds
from tests.synthetic.random_snapshots import Judged


def _shuffled(reports: pa.Table, seed: int) -> pa.Table:
    random = Random(seed)
    order = list(range(reports.num_rows)) + [at for at in range(reports.num_rows) if random.random() < 0.3]
    random.shuffle(order)
    return reports.take(pa.array(order))


@pytest.mark.parametrize("seed", range(2))
def test_reports_in_any_order_give_the_services_snapshots_and_verdicts(run: Judged, seed: int) -> None:
    together = assembled(
        pa.concat_tables([_shuffled(run.reports, seed), header_rows(run.snapshots)], promote_options="default")
    )
    for wanted_row, got_row in zip(run.snapshots.to_pylist(), together.to_pylist(), strict=True):
        wanted, got = snapshot_of(wanted_row), snapshot_of(got_row)
        assert (got.ref, got.missing, got.in_transit) == (wanted.ref, wanted.missing, wanted.in_transit)
        assert got.processes == wanted.processes
        assert got.waits.names == wanted.waits.names
        assert list(got.waits.waits()) == list(wanted.waits.waits())
    assert [verdict_of(row) for row in verdicts_on(together, run.predicates).to_pylist()] == list(run.verdicts)


def test_without_headers_doubt_only_delays_verdicts(run: Judged) -> None:
    predicates = [find_predicate("deadlock"), find_predicate("termination")]
    wanted = {(verdict.snapshot.id, verdict.predicate): verdict for verdict in run.verdicts}
    together = assembled(_shuffled(run.reports, 7))
    for row in verdicts_on(together, predicates).to_pylist():
        got, service = verdict_of(row), wanted[row["snapshot"], row["predicate"]]
        if not service.missing:
            assert (got.holds, got.remainder, got.core) == (service.holds, service.remainder, service.core)
        elif got.holds is not Holds.UNDETERMINED:
            assert got.holds is service.holds


def test_silent_members_are_named_if_waited_for_and_else_counted() -> None:
    assert _guessed_names({"a"}, ["a/task", "b/task", "b/other"], 3) == ["b", "?1", "?2"]


def test_the_columns_about_waits_suffice_for_deadlock(run: Judged) -> None:
    few = run.reports.select(WAIT_REPORT_COLUMNS)
    together = assembled(pa.concat_tables([few, header_rows(run.snapshots)], promote_options="default"))
    got = [verdict_of(row) for row in verdicts_on(together, [find_predicate("deadlock")]).to_pylist()]
    assert got == [verdict for verdict in run.verdicts if verdict.predicate == "deadlock"]


def test_a_snapshot_without_reports_is_included(run: Judged) -> None:
    together = assembled(
        pa.concat_tables([run.reports.slice(0, 0), header_rows(run.snapshots.slice(0, 2))], promote_options="default")
    )
    assert together.column("snapshot").to_pylist() == [1, 2]
    assert together.column("waits").to_pylist()[0]["names"] == []
