"""`stilltrue compact`: days that are old enough, one line of results, and errors in one line."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from detector.archive.files import ArchiveFiles
from detector.archive.writer import ArchiveWriter
from detector.commands.archives.compact import compact
from detector.core.registry import find_predicate
from tests.synthetic.random_snapshots import Judged, judged, random_snapshots


@pytest.fixture(scope="module")
def run() -> Judged:
    return judged(random_snapshots(3, 30), [find_predicate("deadlock")])


@pytest.fixture
def location(tmp_path: Path, run: Judged) -> str:
    writer = ArchiveWriter(ArchiveFiles(str(tmp_path / "archive")), reports_max=30)
    for made in run.made:
        writer.add(made.assembled, members=made.members)
    writer.flush()
    return str(tmp_path / "archive")


def test_the_days_up_to_the_given_one_are_compacted(location: str) -> None:
    (day,) = ArchiveFiles(location).days("snapshots")
    young = CliRunner().invoke(compact, [location, "--until", "2026-01-01"])
    assert (young.exit_code, young.stdout) == (0, "up to 2026-01-01: nothing to merge\n")
    done = CliRunner().invoke(compact, [location, "--until", day])
    assert done.exit_code == 0
    assert done.stdout.endswith(" files became 2\n")
    assert len(ArchiveFiles(location).scan("snapshots").files) == 1


def test_a_torn_file_is_named(location: str) -> None:
    torn = Path(ArchiveFiles(location).scan("snapshots").files[0].path)
    torn.write_bytes(b"PAR1")
    done = CliRunner().invoke(compact, [location, "--until", "2030-01-01"])
    assert done.exit_code == 0
    assert f"left out: {torn}" in done.stderr


def test_a_missing_archive_is_an_error_in_one_line(tmp_path: Path) -> None:
    done = CliRunner().invoke(compact, [str(tmp_path)])
    assert done.exit_code == 2
    assert done.stderr.startswith(f"stilltrue: {tmp_path}: no archive here")
    assert done.stderr.count("\n") == 1
