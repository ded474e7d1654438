"""Spark's workers read and write an object store themselves, without a shared directory."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyarrow import fs
from pyspark.sql import SparkSession

from detector.archive.compact import compact
from detector.archive.files import ArchiveFiles
from detector.archive.offsets import Wanted
from detector.archive.rows.row_decoder import verdict_of
from detector.archive.units import open_archive
from detector.commands.archives.analyze import analyze
from detector.commands.archives.stream import stream
from detector.spark.batch import table, verdicts_of_archive, verdicts_of_reports
from detector.spark.streaming.pipeline import verdicts
from detector.spark.streaming.plan import StreamPlan
from stilltrue.model import Verdict
from tests.synthetic.hostile_archives import NAMES, Key, wanted, written
from tests.synthetic.object_storage import BUCKET, object_storage, verdict_rows

pytestmark = pytest.mark.longer
ARCHIVE = f"s3://{BUCKET}/archive"
PREDICATES = [word for name in NAMES for word in ("--predicate", name)]


@pytest.fixture
def storage(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[fs.FileSystem]:
    """The session's workers are told of it as those of a cluster are: in their environment."""
    monkeypatch.setattr(SparkSession, "stop", lambda _: None)  # it is the tests' session
    with object_storage() as made:
        for name in ("AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION"):
            monkeypatch.setitem(spark.sparkContext.environment, name, os.environ[name])
        yield made


@pytest.fixture(scope="module")
def truth() -> Mapping[Key, Verdict]:
    return wanted()


@pytest.mark.not_in_ci
def test_spark_reads_and_writes_an_object_store(
    spark: SparkSession, storage: fs.FileSystem, truth: Mapping[Key, Verdict], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = written(tmp_path / "archive")
    compact(ArchiveFiles(str(folder)))  # fewer requests
    fs.copy_files(str(folder), f"{BUCKET}/archive", destination_filesystem=storage)
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    done = CliRunner().invoke(analyze, [ARCHIVE, "--out", f"s3://{BUCKET}/out", "--engine", "spark", *PREDICATES])
    assert done.exit_code == 0, done.stderr
    assert verdict_rows(storage, f"{BUCKET}/out/verdicts") == truth

    done = CliRunner().invoke(stream, [ARCHIVE, "--out", f"s3://{BUCKET}/stream", "--once", *PREDICATES])
    assert done.exit_code == 0, done.stderr
    assert done.stdout == f"{len(truth) // len(NAMES)} snapshots finished; verdicts: s3://{BUCKET}/stream/verdicts\n"
    assert verdict_rows(storage, f"{BUCKET}/stream/verdicts") == truth

    archive = open_archive(ARCHIVE)
    reports, headers = table(spark, archive, "reports"), table(spark, archive, "snapshots")
    days = {row.day for row in reports.select("day").distinct().collect()}
    assert days == set(archive.store.days("reports"))
    assert table(spark, archive, "reports", Wanted(day_max="2000-01-01")).count() == 0
    for frame in (
        verdicts(spark, StreamPlan(out=f"s3://{BUCKET}/stream", predicates=NAMES)),
        verdicts_of_archive(spark, archive, NAMES),
        verdicts_of_reports(reports, NAMES, headers=headers),
    ):
        rows = [row.asDict(recursive=True) for row in frame.collect()]
        assert {(row["archive"], row["snapshot"], row["predicate"]): verdict_of(row) for row in rows} == truth
    assert list(Path.cwd().iterdir()) == [], "nothing on the disk"
