"""What the kernels' tests share: random snapshots with the service's verdicts on them, and an archive of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from detector.archive.files import ArchiveFiles
from detector.archive.writer import ArchiveWriter
from detector.core.registry import find_predicate, predicate_names
from tests.synthetic.random_snapshots import Judged, WorldShape, judged, random_snapshots

SHAPES = (WorldShape(), WorldShape(processes=3, calls=3, missing_share=0.2), WorldShape(calls=20))


@pytest.fixture(scope="session")
def run() -> Judged:
    """Of every predicate, on snapshots of three shapes."""
    made = [each for seed, shape in enumerate(SHAPES) for each in random_snapshots(seed, 60, shape)]
    return judged(made, [find_predicate(name) for name in predicate_names()])


@pytest.fixture(scope="session")
def long_run() -> Judged:
    """Of the predicates about waits, on thousands of snapshots."""
    made = [each for seed, shape in enumerate(SHAPES, start=10) for each in random_snapshots(seed, 500, shape)]
    return judged(made, [find_predicate("deadlock"), find_predicate("gridlock")])


@pytest.fixture(scope="session")
def location(run: Judged, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The archive of ``run``, in files of a few snapshots each."""
    folder = tmp_path_factory.mktemp("archive")
    writer = ArchiveWriter(ArchiveFiles(str(folder)), reports_max=300, seconds_max=1e9)
    for made in run.made:
        writer.add(made.assembled, members=made.members)
    writer.flush()
    return folder
