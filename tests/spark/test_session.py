"""Spark's failures are one line: an invalid master, no Spark, an error in a job."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyspark
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from detector.spark.java import JavaError, find_java, java_major
from detector.spark.python_daemon import installed_first
from detector.spark.session import SparkFailedError, java_options, one_line_errors, open_session, python_options, reason


@pytest.mark.parametrize("master", ["nonsense", "spark://nowhere", "spark://"])
def test_an_invalid_master_is_reported_before_java_starts(master: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("detector.spark.session.SparkSession.getActiveSession", lambda: None)
    monkeypatch.setattr("detector.spark.session.find_java", lambda: None)
    with pytest.raises(SparkFailedError, match=rf"'{master}' is not a valid master; use local, local\[2\], spark://"):
        open_session(master)


@pytest.mark.parametrize(("watched", "announced", "said"), [(True, False, 1), (True, True, 0), (False, False, 0)])
def test_a_person_is_told_that_spark_starts(
    watched: bool, announced: bool, said: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("detector.spark.session.SparkSession.getActiveSession", lambda: None)
    monkeypatch.setattr("detector.spark.session.find_java", lambda: None)
    monkeypatch.setattr("detector.spark.session._is_watched", lambda: watched)
    monkeypatch.setattr("pyspark.sql.SparkSession.Builder.getOrCreate", lambda _: cast("Any", None))
    with pytest.raises(AttributeError):  # that of the session which did not start
        open_session("local[1]", announced=announced)
    assert capsys.readouterr().err.count("starting Spark: the first rows take 20 seconds") == said


def test_java_shares_class_data_in_a_named_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STILLTRUE_SPARK_CLASSES", raising=False)
    assert "Archive" not in java_options()
    file = tmp_path / "its classes"
    monkeypatch.setenv("STILLTRUE_SPARK_CLASSES", str(file))
    assert shlex.split(java_options())[-1] == f"-XX:ArchiveClassesAtExit={file}"
    file.touch()
    assert shlex.split(java_options())[-1] == f"-XX:SharedArchiveFile={file}"


def test_workers_of_a_local_session_import_the_installed_pyspark(spark: SparkSession) -> None:
    """Of the zip file that Spark puts first on their path, each worker would compile every module."""

    def imported(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            yield pa.RecordBatch.from_pydict({"file": [str(sys.modules["pyspark.worker"].__file__)]})

    (row,) = spark.range(1).mapInArrow(imported, "file string").collect()
    assert row.file == str(Path(pyspark.__file__).parent / "worker.py")


def test_workers_of_another_python_are_started_by_spark_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may lack our packages, which tasks of the session's user may not need; if ours do, Spark's error names the module."""
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    assert python_options() == {"spark.python.daemon.module": "detector.spark.python_daemon"}
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    assert python_options() == {"spark.python.daemon.module": "detector.spark.python_daemon"}
    monkeypatch.setenv("PYSPARK_PYTHON", "/usr/bin/python3")
    assert python_options() == {}


def test_zip_files_of_another_spark_stay_first() -> None:
    package = Path("/env/site-packages/pyspark")
    own, py4j = f"{package}/python/lib/pyspark.zip", f"{package}/python/lib/py4j-0.10.9.9-src.zip"
    paths = ["/here", own, "/spark/python/lib/pyspark.zip", py4j, f"{package}/jars/core.jar", "/env/site-packages"]
    moved = ["/here", "/spark/python/lib/pyspark.zip", f"{package}/jars/core.jar", "/env/site-packages", own, py4j]
    assert installed_first(paths, package) == moved
    assert installed_first(paths, Path("/other/site-packages/pyspark")) == paths
    assert installed_first(paths, None) == paths


def test_a_failure_in_a_worker_is_one_line(spark: SparkSession) -> None:
    def broken(batches: object) -> object:
        raise ValueError("no such thing")

    with pytest.raises(SparkFailedError) as caught, one_line_errors("Spark failed"):
        spark.range(2).mapInArrow(broken, "id long").collect()  # type: ignore[arg-type]
    assert str(caught.value) == "Spark failed: no such thing"


def test_an_exception_not_from_spark_is_passed_on() -> None:
    with pytest.raises(OSError, match="full"), one_line_errors("Spark failed"):
        raise OSError("full")
    with pytest.raises(SparkFailedError, match=r"^it: gone$"), one_line_errors("it"):
        raise PySparkException("gone")


def test_the_reason_is_found_in_a_java_traceback() -> None:
    text = "An error\n: org.x.SparkException: aborted\n\tat a.b(C.java:1)\nCaused by: java.io.IOException: No space left"
    assert reason(text) == "No space left"


def test_what_grpc_logs_is_no_reason() -> None:
    log = "I1127 07:19:37.302000 13182 fork_posix.cc:71] Other threads are calling into gRPC, skipping fork() handlers\n"
    assert reason(log) == "it ended without a message"
    assert reason(log + "Unrecognized option: -XX\n") == "Unrecognized option: -XX"


@pytest.mark.parametrize(
    ("text", "major"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_402"', 8),
        ('openjdk version "21" x', 21),
        ("no", None),
    ],
)
def test_the_version_of_java_is_parsed(text: str, major: int | None) -> None:
    assert java_major(text) == major


def test_workers_with_another_package_than_the_driver_are_named() -> None:
    told = reason("Traceback (most recent call last):\n  File ...\nModuleNotFoundError: No module named 'detector'")
    assert told.startswith("No module named 'detector' in a worker; workers need the driver's packages")
    assert reason("ModuleNotFoundError: No module named 'pandas'") == "No module named 'pandas'"


def test_an_unsuitable_java_is_an_error_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    with pytest.raises(JavaError, match="needs Java 17 or newer") as caught:
        find_java()
    assert "\n" not in str(caught.value)
