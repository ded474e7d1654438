"""Old days are compacted once, beside the writer; a failure is one line in the log."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from detector.archive.files import ArchiveFiles, day_of
from detector.archive.writer import ArchiveWriter
from detector.core.registry import find_predicate
from detector.ops.logs import Log
from detector.service.storage.compactor import Compactor
from tests.synthetic.random_snapshots import EPOCH_SECONDS, Judged, judged, random_snapshots

DAY = 86_400.0


@pytest.fixture(scope="module")
def run() -> Judged:
    return judged(random_snapshots(3, 30), [find_predicate("deadlock")])


@pytest.fixture
def store(tmp_path: Path, run: Judged) -> ArchiveFiles:
    store = ArchiveFiles(str(tmp_path / "archive"))
    writer = ArchiveWriter(store, reports_max=30)
    for made in run.made:
        writer.add(made.assembled, members=made.members)
    writer.flush()
    return store


def _compactor(store: ArchiveFiles, now: float) -> Compactor:
    return Compactor(location=store.location, seconds_min=DAY, log=Log("stilltrue"), clock=lambda: now)


def _files(store: ArchiveFiles) -> int:
    return len(store.scan("reports").files)


def test_a_day_is_compacted_when_it_is_old_enough(store: ArchiveFiles) -> None:
    files = _files(store)
    young = _compactor(store, EPOCH_SECONDS + DAY)
    young.begin_if_due()
    young.wait(30)
    assert _files(store) == files
    old = _compactor(store, EPOCH_SECONDS + 2 * DAY)
    old.begin_if_due()
    old.wait(30)
    assert _files(store) == 1
    assert store.days("reports") == [day_of(EPOCH_SECONDS)]


def test_a_failed_compaction_is_logged_and_not_retried_at_once(store: ArchiveFiles, caplog: pytest.LogCaptureFixture) -> None:
    (Path(store.root) / "_compacting").mkdir()
    compactor = _compactor(store, EPOCH_SECONDS + 2 * DAY)
    with caplog.at_level(logging.INFO, "stilltrue"):
        for _ in range(3):
            compactor.begin_if_due()
            compactor.wait(30)
    assert [record.message for record in caplog.records] == ["archive not compacted"]


def test_zero_disables_compaction(store: ArchiveFiles) -> None:
    compactor = Compactor(location=store.location, seconds_min=0, log=Log("stilltrue"), clock=lambda: 1e10)
    compactor.begin_if_due()
    compactor.wait(30)
    assert _files(store) > 1
