"""What the pipeline's tests share: one local session, and an archive of random snapshots with the service's verdicts."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from detector.archive.files import ArchiveFiles
from detector.archive.writer import ArchiveWriter
from detector.core.registry import find_predicate
from detector.service.app import running
from detector.service.settings import Settings
from detector.service.storage.archive_sink import FOLDER
from detector.spark.java import JavaError, find_java
from detector.spark.session import open_session
from tests.synthetic.random_snapshots import Judged, WorldShape, judged, random_snapshots

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
    writer = ArchiveWriter(ArchiveFiles(str(folder)), reports_max=1500, seconds_max=1e9)
    for made in run.made:
        writer.add(made.assembled, members=made.members)
    writer.flush()
    return folder


@contextmanager
def serving(data: Path, **settings: Any) -> Iterator[str]:
    """The address of a detector over the directory ``data``, on a thread of its own, while it runs."""
    ready, over = threading.Event(), threading.Event()
    found: list[str] = []

    async def run() -> None:
        values: dict[str, Any] = {"port": 0, "http_port": 0, "data": data, "period_seconds": 0.0}
        async with running(Settings(**values | settings), []) as listening:
            found.append(listening.grpc)
            ready.set()
            await asyncio.to_thread(over.wait)

    thread = threading.Thread(target=lambda: asyncio.run(run()), daemon=True)
    thread.start()
    assert ready.wait(30)
    try:
        yield found[0]
    finally:
        over.set()
        thread.join(30)


def archived(run: Judged, data: Path, first: int, last: int, *, reports_max: int = 90) -> ArchiveFiles:
    """Some of the snapshots of ``run`` in the archive of a detector over ``data``, as it would have written them."""
    store = ArchiveFiles(str(data / FOLDER))
    writer = ArchiveWriter(store, reports_max=reports_max, seconds_max=1e9)
    for made in run.made[first:last]:
        writer.add(made.assembled, members=made.members)
    writer.flush()
    return store


@pytest.fixture(name="serving", scope="session")
def serving_fixture() -> Any:
    return serving


@pytest.fixture(name="archived", scope="session")
def archived_fixture() -> Any:
    return archived
