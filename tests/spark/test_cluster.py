"""The stream on two workers in processes of their own (local-cluster), by spark-submit, as docs/pipeline.md says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from detector.archive.nouns import verdict_of
from detector.archive.worlds import WorldShape, judged, random_snapshots
from detector.core.registry import find_predicate
from detector.service.history import FOLDER
from detector.spark.stream import StreamPlan, verdicts

JOB = "from detector.commands.stream import stream\n\nstream()\n"
LOOPBACK = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.ui.enabled": "false",
}


@pytest.mark.soak
def test_two_workers_on_loopback(spark: SparkSession, archived: Any, tmp_path: Path) -> None:
    run = judged(
        random_snapshots(5, 40, WorldShape(missing_share=0.1)), [find_predicate("deadlock"), find_predicate("gridlock")]
    )
    archived(run, tmp_path, 0, 40)
    (tmp_path / "job.py").write_text(JOB)
    settings = [f"--conf={name}={value}" for name, value in LOOPBACK.items()]
    programs = Path(sys.executable).parent
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    environment |= {"PATH": f"{programs}:{os.environ['PATH']}", "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(
        [
            programs / "spark-submit", "--master", "local-cluster[2,1,1024]", *settings, tmp_path / "job.py",
            tmp_path / FOLDER, "--out", tmp_path / "out", "--once",
        ],
        env=environment,
        cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    rows = (row.asDict(recursive=True) for row in verdicts(spark, StreamPlan(out=tmp_path / "out")).collect())
    found = sorted(map(verdict_of, rows), key=lambda verdict: (verdict.snapshot.id or 0, verdict.predicate))
    assert found == list(run.verdicts)
