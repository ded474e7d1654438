"""The pipeline on two workers in separate processes, as in docs/pipeline.md: local-cluster and standalone."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from detector.analysis.analyze import analyze
from detector.archive.files import ArchiveFiles
from detector.archive.rows.row_decoder import verdict_of
from detector.archive.units import open_archive
from detector.core.registry import find_predicate
from detector.service.storage.archive_sink import FOLDER
from detector.spark.engine import SparkEngine
from detector.spark.streaming.pipeline import verdicts
from detector.spark.streaming.plan import StreamPlan
from detector.synthetic.generate import ArchivePlan, generate
from tests.synthetic.random_snapshots import WorldShape, judged, random_snapshots

LOOPBACK = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.ui.enabled": "false",
}
READY_SECONDS_MAX = 120.0
PROGRAMS = Path(sys.executable).parent
PLAN = ArchivePlan(processes=30, snapshots=240, begun=1_790_000_000.0, incidents=2, near_misses=2, load=0.1, seed=4)

Cluster = Callable[[Path], AbstractContextManager[str]]


def local_cluster(folder: Path) -> AbstractContextManager[str]:
    """The driver starts the workers itself."""
    return nullcontext("local-cluster[2,1,1024]")


@contextmanager
def standalone(folder: Path) -> Iterator[str]:
    """A master and two workers of one core each, on loopback: the master's address, while they run."""
    local = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
    with ExitStack() as running:
        master = running.enter_context(_service(folder / "master.txt", "master.Master", *local))
        url = _said(master, r"Starting Spark master at (spark://127\.0\.0\.1:\d+)")
        for at in range(2):
            place = ("--cores", "1", "--memory", "1g", "--work-dir", str(folder / f"worker{at}"))
            worker = running.enter_context(_service(folder / f"worker{at}.txt", "worker.Worker", *local, *place, url))
            _said(worker, f"(Successfully registered) with master {url}")
        yield url
        assert all(list(folder.glob(f"worker{at}/app-*/*")) for at in range(2)), "both worked"


@contextmanager
def _service(log: Path, name: str, *arguments: str) -> Iterator[Path]:
    """One of Spark's own services in a process of its own; its log."""
    command = [str(PROGRAMS / "spark-class"), f"org.apache.spark.deploy.{name}", *arguments]
    with log.open("wb") as sink:
        process = subprocess.Popen(command, env=_environment(), stdin=subprocess.DEVNULL, stdout=sink, stderr=sink)
    try:
        yield log
    finally:
        process.terminate()
        process.wait(READY_SECONDS_MAX)


def _said(log: Path, pattern: str) -> str:
    """What a service says in its log, as soon as it does."""
    until = time.monotonic() + READY_SECONDS_MAX
    while time.monotonic() < until:
        if found := re.search(pattern, log.read_text()):
            return found[1]
        threading.Event().wait(0.05)
    raise AssertionError(log.read_text()[-2000:])


def _environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    return kept | {
        "PATH": f"{PROGRAMS}:{os.environ['PATH']}",
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_MASTER_OPTS": "-Dspark.master.rest.enabled=false",
        "PYSPARK_PYTHON": sys.executable,
    }


def _submit(folder: Path, master: str, command: str, *arguments: object) -> None:
    """Run the command as a job, to its end."""
    job = folder / "job.py"
    job.write_text(f"from detector.commands.archives.{command} import {command}\n\n{command}()\n")
    settings = [f"--conf={name}={value}" for name, value in LOOPBACK.items()]
    done = subprocess.run(
        [PROGRAMS / "spark-submit", "--master", master, *settings, job, *map(str, arguments)],
        env=_environment(), cwd=folder, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.soak
@pytest.mark.parametrize("cluster", [local_cluster, standalone])
def test_the_stream_on_two_workers(spark: SparkSession, archived: Any, tmp_path: Path, cluster: Cluster) -> None:
    run = judged(
        random_snapshots(5, 40, WorldShape(missing_share=0.1)), [find_predicate("deadlock"), find_predicate("gridlock")]
    )
    archived(run, tmp_path, 0, 40)
    with cluster(tmp_path) as master:
        _submit(tmp_path, master, "stream", tmp_path / FOLDER, "--out", tmp_path / "out", "--once")
    rows = (row.asDict(recursive=True) for row in verdicts(spark, StreamPlan(out=str(tmp_path / "out"))).collect())
    found = sorted(map(verdict_of, rows), key=lambda verdict: (verdict.snapshot.id or 0, verdict.predicate))
    assert found == list(run.verdicts)


@pytest.mark.soak
@pytest.mark.parametrize("cluster", [local_cluster, standalone])
def test_an_analysis_on_workers_gives_the_local_result(spark: SparkSession, tmp_path: Path, cluster: Cluster) -> None:
    archive, here, there = (tmp_path / name for name in ("archive", "here", "there"))
    generate(ArchiveFiles(str(archive)), PLAN, progress=lambda _: None)
    analyze(SparkEngine(spark), open_archive(str(archive)), str(here), progress=lambda _: None)
    with cluster(tmp_path) as master:
        _submit(tmp_path, master, "analyze", archive, "--out", there)
    assert json.loads((there / "summary.json").read_text()) == json.loads((here / "summary.json").read_text())
    tables = sorted(path.name for path in here.iterdir() if path.is_dir() and path.name[0] != "_")
    assert {"verdicts", "incidents", "near_misses", "pools"} <= set(tables)
    for name in tables:
        assert _rows(there / name) == _rows(here / name), name
    assert (there / "report.html").is_file()


def _rows(table: Path) -> list[str]:
    """A result table's rows, whichever file they lie in."""
    return sorted(json.dumps(row, sort_keys=True, default=str) for row in pq.read_table(table).to_pylist())
