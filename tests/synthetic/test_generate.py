"""A generated archive is the same however many processes write it, and records what was planted."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from detector.archive.files import ArchiveFiles
from detector.synthetic import generate as generating
from detector.synthetic.generate import ArchivePlan, generate

PLAN = ArchivePlan(processes=12, snapshots=60, begun=1_790_000_000.0, incidents=2, near_misses=1, seed=3)


def _rows(folder: Path, table: str) -> pa.Table:
    store = ArchiveFiles(str(folder))
    return pa.concat_tables([rows for file in store.scan(table).files for rows in store.read(file)])


@pytest.mark.slow
def test_one_or_two_processes_write_the_same_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generating, "REPORTS_PER_FILE", 72)
    done: list[int] = []
    for jobs in (1, 2):
        generate(ArchiveFiles(str(tmp_path / str(jobs))), PLAN, progress=done.append, jobs=jobs)
    assert done[: len(done) // 2] == done[len(done) // 2 :] == [*range(6, 61, 6)]
    for table in ("reports", "snapshots"):
        assert _rows(tmp_path / "1", table).equals(_rows(tmp_path / "2", table))
    told = [json.loads((tmp_path / jobs / "truth.json").read_text()) for jobs in ("1", "2")]
    assert told[0] == told[1]
    assert len(told[0]["planted"]) == 3
