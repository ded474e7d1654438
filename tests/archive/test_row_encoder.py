"""A row reads back equal to what was written."""

from __future__ import annotations

from detector.archive.rows.row_decoder import snapshot_of, verdict_of
from detector.archive.rows.row_encoder import verdict_row
from detector.archive.rows.schema import VERDICTS
from tests.archive.reports_of_rows import report_of
from tests.synthetic.random_snapshots import Judged


def test_snapshots_read_back(run: Judged) -> None:
    for made, row in zip(run.made, run.snapshots.to_pylist(), strict=True):
        wanted, got = made.assembled.snapshot, snapshot_of(row)
        assert (got.ref, got.missing, got.in_transit) == (wanted.ref, wanted.missing, wanted.in_transit)
        assert got.processes == wanted.processes
        assert (got.waits.names, list(got.waits.waits())) == (wanted.waits.names, list(wanted.waits.waits()))


def test_reports_read_back(run: Judged) -> None:
    wanted = [made.assembled.reports[name] for made in run.made for name in sorted(made.assembled.reports)]
    assert [report_of(row) for row in run.reports.to_pylist()] == wanted


def test_verdicts_read_back(run: Judged) -> None:
    assert [verdict_of(dict.fromkeys(VERDICTS.names) | verdict_row(verdict)) for verdict in run.verdicts] == list(run.verdicts)
