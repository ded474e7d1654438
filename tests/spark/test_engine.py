"""Spark as an engine: the same tables as the local engine; one line without Java or when interrupted."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from detector.analysis.analyze import analyze
from detector.analysis.engine import Engine, LocalEngine
from detector.archive.files import ArchiveFiles
from detector.archive.rows.row_decoder import verdict_of
from detector.archive.units import open_archive
from detector.commands.archives.analyze import analyze as command
from detector.spark.batch import incidents, sightings, verdicts_of_archive
from detector.spark.engine import SparkEngine
from detector.synthetic.generate import ArchivePlan, generate
from tests.synthetic.random_snapshots import Judged

PLAN = ArchivePlan(processes=30, snapshots=240, begun=1_790_021_600.0, incidents=2, near_misses=2, load=0.1, seed=4)


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("planted")
    generate(ArchiveFiles(str(folder)), PLAN, progress=lambda _: None)
    return folder


def _table(path: Path) -> list[str]:
    """A result table's rows, whichever file they lie in."""
    return sorted(json.dumps(row, sort_keys=True, default=str) for row in pq.read_table(path).to_pylist())


@pytest.mark.longer
def test_both_engines_give_the_same_tables(spark: SparkSession, planted: Path, tmp_path: Path) -> None:
    archive = open_archive(str(planted))
    engines: dict[str, Engine] = {
        "one": LocalEngine(),
        "two": LocalEngine(processes=2, reports_per_process_min=1000),
        "spark": SparkEngine(spark),
        "tasks": SparkEngine(spark, reports_per_task_min=1000),
    }
    summaries = {}
    for name, engine in engines.items():
        analyze(engine, archive, str(tmp_path / name), progress=lambda _: None)
        summaries[name] = json.loads((tmp_path / name / "summary.json").read_text()) | {"engine": ""}
    assert all(summary == summaries["one"] for summary in summaries.values())
    tables = sorted(path.name for path in (tmp_path / "one").iterdir() if path.is_dir() and path.name[0] != "_")
    assert {"verdicts", "incidents", "near_misses", "pools"} <= set(tables)
    for name in tables:
        one = _table(tmp_path / "one" / name)
        assert all(_table(tmp_path / engine / name) == one for engine in engines), name


def test_verdicts_of_either_engine_are_the_services(spark: SparkSession, run: Judged, location: Path, tmp_path: Path) -> None:
    for name, engine in (("local", LocalEngine()), ("spark", SparkEngine(spark))):
        analyze(
            engine, open_archive(str(location)), str(tmp_path / name), ("deadlock", "gridlock", "termination", "token-lost")
        )
        rows = pq.read_table(tmp_path / name / "verdicts").to_pylist()
        found = {(row["snapshot"], row["predicate"]): verdict_of(row) for row in rows}
        assert found == {(verdict.snapshot.id, verdict.predicate): verdict for verdict in run.verdicts}


def test_dataframes_compose_to_the_same_incidents(spark: SparkSession, planted: Path, tmp_path: Path) -> None:
    archive = open_archive(str(planted))
    found = analyze(LocalEngine(), archive, str(tmp_path), progress=lambda _: None)
    verdicts = verdicts_of_archive(spark, archive, ["deadlock"]).cache()
    seen = sightings(verdicts).collect()
    assert [row.id for row in seen if row.kind == "core"] == [each.id for each in found.incidents]
    assert sum(row.kind == "near miss" for row in seen) == len(found.near_misses)
    rows = [row.asDict() for row in incidents(verdicts).collect()]
    assert [(row["id"], row["first_snapshot"], row["closed"]) for row in rows] == [
        (each.id, each.first_snapshot, each.closed) for each in found.incidents
    ]


def test_the_command_runs_on_spark(spark: SparkSession, planted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkSession, "stop", lambda _: None)  # it is the tests' session
    result = CliRunner().invoke(command, [str(planted), "--out", str(tmp_path / "out"), "--engine", "spark"])
    assert result.exit_code == 0, result.stderr
    assert result.stdout.startswith(f"{PLAN.snapshots} snapshots, ")
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["engine"] == "spark"


def test_without_java_one_line_says_what_to_install(planted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("detector.spark.session.SparkSession.getActiveSession", lambda: None)
    for home, words in (("/nowhere", "there is none in JAVA_HOME"), (str(tmp_path), "is Java 8")):
        java = tmp_path / "bin" / "java"
        java.parent.mkdir(exist_ok=True)
        java.write_text("#!/bin/sh\necho 'java version \"1.8.0_402\"' >&2\n")
        java.chmod(0o755)
        monkeypatch.setenv("JAVA_HOME", home)
        result = CliRunner().invoke(command, [str(planted), "--out", str(tmp_path / "out"), "--engine", "spark"])
        assert result.exit_code == 2
        assert result.stderr.splitlines()[0] == "starting Spark ..."
        (line,) = result.stderr.splitlines()[1:]
        assert words in line
        assert "openjdk-17" in line
    assert CliRunner().invoke(command, [str(planted), "--out", str(tmp_path / "out")]).exit_code == 0  # local needs none


@pytest.mark.longer
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_an_analysis_without_a_java_traceback(
    planted: Path, tmp_path: Path, number: signal.Signals, status: int
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "report.html").write_text("of an earlier time")
    program = [sys.executable, "-m", "detector", "analyze", str(planted), "--out", str(out), "--master", "local[1]"]
    with subprocess.Popen(program, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as running:
        assert running.stderr is not None
        said = []
        for line in running.stderr:
            said.append(line)
            if "evaluating" in line:
                running.send_signal(number)
        assert running.wait(60) == status
    assert said[0] == "starting Spark ...\n"
    assert said[-1] == "stilltrue: interrupted\n"
    own = re.compile(r" *\d+\.\d s  .*|starting Spark \.\.\. \d+ s")
    assert all(own.match(line) for line in said[1:-1] if line.strip()), "nothing of Java's own"
    assert (out / "report.html").read_text() == "of an earlier time", "with the tables of that time"
