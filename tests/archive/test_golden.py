"""Archives of every released schema version read to the same snapshots, reports and verdicts."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from detector.analysis.assembly import assembled, header_rows
from detector.analysis.verdicts import verdicts_on
from detector.archive.files import ArchiveFiles
from detector.archive.rows.row_decoder import snapshot_of, verdict_of
from detector.archive.rows.schema import VERDICTS
from detector.predicates.deadlock import Deadlock
from stilltrue.model import Verdict
from tests.archive.reports_of_rows import report_of

GOLDEN = sorted(Path(__file__).parent.glob("data/v*"))


def _rows(store: ArchiveFiles, table: str) -> pa.Table:
    scan = store.scan(table)
    assert not scan.left_out
    return pa.concat_tables([data for file in scan.files for data in store.read(file)])


@pytest.mark.parametrize("folder", GOLDEN, ids=lambda folder: folder.name)
def test_a_golden_archive_still_reads_the_same(folder: Path) -> None:
    store = ArchiveFiles(str(folder))
    wanted = [verdict_of(dict.fromkeys(VERDICTS.names) | row) for row in json.loads((folder / "deadlock.json").read_text())]
    archived = [verdict_of(row) for row in _rows(store, "verdicts").to_pylist() if row["predicate"] == "deadlock"]
    snapshots, reports = _rows(store, "snapshots"), _rows(store, "reports")
    assert archived == wanted
    assert [_told(verdict_of(row)) for row in verdicts_on(snapshots, [Deadlock()]).to_pylist()] == list(map(_told, wanted))
    together = assembled(pa.concat_tables([reports, header_rows(snapshots)], promote_options="default"))
    assert [_told(verdict_of(row)) for row in verdicts_on(together, [Deadlock()]).to_pylist()] == list(map(_told, wanted))
    assert len([report_of(row) for row in reports.to_pylist()]) == reports.num_rows
    assert len([snapshot_of(row) for row in snapshots.to_pylist()]) == 12


def _told(verdict: Verdict) -> tuple[object, ...]:
    """All but the sentences, which may be put better one day."""
    return verdict.snapshot, verdict.holds, verdict.remainder, verdict.core, verdict.behind, verdict.missing


def test_there_is_a_golden_archive() -> None:
    assert [folder.name for folder in GOLDEN] == ["v1", "v2", "v3", "v4"]
