"""What the pipeline's tests share: one local session, and an archive of random snapshots with the service's verdicts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from detector.archive.store import Store
from detector.archive.worlds import Judged, WorldShape, judged, random_snapshots
from detector.archive.writer import ArchiveWriter
from detector.core.registry import find_predicate
from detector.spark.java import JavaError, find_java
from detector.spark.session import open_session

PREDICATES = ("deadlock", "gridlock", "termination", "token-lost")


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    try:
        find_java()
    except JavaError as error:
        pytest.skip(str(error))
    folder = tmp_path_factory.mktemp("spark")
    session = open_session(
        "local[2]",
        {
            "spark.sql.shuffle.partitions": "2",
            "spark.driver.memory": "1g",
            "spark.local.dir": str(folder),
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
        },
    )
    yield session
    session.stop()


@pytest.fixture(scope="session")
def run() -> Judged:
    shapes = (WorldShape(), WorldShape(processes=3, calls=3, missing_share=0.2), WorldShape(calls=20))
    made = [each for seed, shape in enumerate(shapes, start=20) for each in random_snapshots(seed, 200, shape)]
    return judged(made, [find_predicate(name) for name in PREDICATES])


@pytest.fixture(scope="session")
def location(run: Judged, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The archive of ``run``, in files of a few snapshots each."""
    folder = tmp_path_factory.mktemp("archive")
    writer = ArchiveWriter(Store(str(folder)), reports_max=1500, seconds_max=1e9)
    for made in run.made:
        writer.add(made.assembled, members=made.members)
    writer.flush()
    return folder
