"""A streaming query killed (SIGKILL) repeatedly and restarted gives every verdict exactly once."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyarrow import fs
from pyspark.sql import SparkSession

from detector.archive.compact import compact
from detector.archive.rows.row_decoder import verdict_of
from detector.core.registry import find_predicate
from detector.service.storage.archive_sink import FOLDER
from detector.spark.streaming.pipeline import verdicts
from detector.spark.streaming.plan import StreamPlan
from detector.spark.streaming.progress import MAKING
from detector.spark.streaming.storage import Storage
from stilltrue.model import Verdict
from tests.synthetic.object_storage import BUCKET, object_storage, verdict_rows
from tests.synthetic.random_snapshots import Judged, WorldShape, judged, random_snapshots

PREDICATES = ("deadlock", "termination")
PROCESS = Path(__file__).with_name("stream_process.py")
SECONDS_MAX = 180.0

Moment = Callable[[StreamPlan], bool]


@pytest.fixture(scope="module")
def short() -> Judged:
    made = random_snapshots(5, 60, WorldShape(missing_share=0.1))
    return judged(made, [find_predicate(name) for name in PREDICATES])


class Killed:
    """A stream in processes of its own, each killed at a moment, the last left to end."""

    def __init__(self, folder: Path, *, archive: str, address: str = "", out: str = "") -> None:
        self.plan = StreamPlan(out=out or str(folder / "out"), predicates=PREDICATES)
        self.killed = 0
        (folder / "scratch").mkdir(parents=True)
        self._log = folder / "log.txt"
        self._asked = folder / "plan.json"
        self._asked.write_text(
            json.dumps(
                {
                    "out": self.plan.out,
                    "archive": archive,
                    "address": address,
                    "scratch": str(folder / "scratch"),
                    "predicates": PREDICATES,
                    "give_up_seconds": 600.0,
                    "bytes_per_batch_max": 60_000,
                    "rows_per_batch_max": 60,
                }
            )
        )

    def run(self, moment: Moment = lambda _: False) -> bool:
        """Start it, and kill it and all that it started when ``moment`` has come; whether it was killed."""
        with self._log.open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, str(PROCESS), str(self._asked)], stdout=log, stderr=log, start_new_session=True
            )
        until = time.monotonic() + SECONDS_MAX
        try:
            while process.poll() is None:
                assert time.monotonic() < until, self._log.read_text()[-2000:]
                if moment(self.plan):
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
                    self.killed += 1
                    return True
                threading.Event().wait(0.002)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        assert process.returncode == 0, self._log.read_text()[-2000:]
        return False

    def found(self, spark: SparkSession) -> list[Verdict]:
        rows = [row.asDict(recursive=True) for row in verdicts(spark, self.plan).collect()]
        assert not Storage(location=self.plan.out).sizes("left_out")
        return sorted(map(verdict_of, rows), key=lambda verdict: (verdict.snapshot.id or 0, verdict.predicate))


def _making(plan: StreamPlan) -> bool:
    """Some results of a micro-batch are written and not all: its commit is not there yet."""
    made = [name for name in plan.state_storage.sizes("") if name.startswith(MAKING) and "/verdicts/" in name]
    return bool(made) and plan.folder.last().batch >= 0


@pytest.mark.not_in_ci
@pytest.mark.longer
def test_a_stream_killed_while_writing_continues_after_compaction(
    spark: SparkSession, short: Judged, archived: Any, tmp_path: Path
) -> None:
    store = archived(short, tmp_path, 0, 40, reports_max=30)
    stream = Killed(tmp_path / "stream", archive=str(tmp_path / FOLDER))
    assert stream.run(_making)
    compact(store)  # under a stream that has read some of it
    archived(short, tmp_path, 40, 60, reports_max=30)
    for path in list((tmp_path / FOLDER).rglob("reports/*/*.parquet"))[-2:]:
        shutil.copy(path, path.with_name(f"late-{path.name}"))
    assert not stream.run()
    assert stream.found(spark) == list(short.verdicts)


@pytest.mark.not_in_ci
@pytest.mark.longer
def test_a_killed_stream_continues_from_an_object_store(short: Judged, archived: Any, tmp_path: Path) -> None:
    """Archive, state and verdicts are there: no directory is shared."""
    archived(short, tmp_path, 0, 20, reports_max=40)
    with object_storage() as store:
        fs.copy_files(str(tmp_path / FOLDER), f"{BUCKET}/archive", destination_filesystem=store)
        stream = Killed(tmp_path / "stream", archive=f"s3://{BUCKET}/archive", out=f"s3://{BUCKET}/out")
        assert stream.run(_making)
        assert not stream.run()
        found = verdict_rows(store, f"{BUCKET}/out/verdicts")
    assert found == {(None, verdict.snapshot.id, verdict.predicate): verdict for verdict in short.verdicts[:40]}
    assert not (tmp_path / "stream" / "out").exists()


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["archive", "detector"])
@pytest.mark.parametrize("seed", range(2))
def test_a_stream_killed_at_any_time_continues(
    spark: SparkSession, short: Judged, serving: Any, archived: Any, tmp_path: Path, kind: str, seed: int
) -> None:
    random = Random(seed)
    store = archived(short, tmp_path, 0, 60, reports_max=30)
    with serving(tmp_path, archive_take_seconds_max=5.0) as address:
        stream = Killed(tmp_path / "stream", archive=str(tmp_path / FOLDER), address=address if kind == "detector" else "")
        for turn in range(5):
            begun = time.monotonic() + random.uniform(0, 4)
            if not stream.run(lambda plan, at=begun: bool(plan.state_storage.names()) and time.monotonic() > at + 6):  # type: ignore[misc]
                break
            if turn == 2:
                compact(store)
        stream.run()
    assert stream.killed
    assert stream.found(spark) == list(short.verdicts)
