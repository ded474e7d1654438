"""SQL over an archive and over results, on a disk and in an object store."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pyarrow import fs
from pyspark.sql import SparkSession

from detector.analysis.analyze import analyze
from detector.analysis.engine import LocalEngine
from detector.archive.files import ArchiveError, ArchiveFiles
from detector.archive.units import open_archive
from detector.spark.batch import table
from detector.spark.streaming.pipeline import archive_stream, start
from detector.spark.streaming.plan import StreamPlan
from detector.spark.views import archive_views, result_views
from detector.synthetic.generate import ArchivePlan, generate
from tests.synthetic.object_storage import BUCKET, object_storage

PLAN = ArchivePlan(processes=10, snapshots=60, begun=1_790_021_600.0, incidents=1, near_misses=0, load=0.1, seed=4)
CREDENTIALS = ("AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION")
BY_DAY = "select day, count(*) from found_verdicts where predicate = 'deadlock' group by day order by day"
SEEN = """select i.id, count(*) from found_incidents i
          join found_verdicts v on v.snapshot between i.first_snapshot and i.last_snapshot and v.predicate = 'deadlock'
          join snapshots s on s.snapshot = v.snapshot where v.holds = 'true' group by i.id"""


@pytest.mark.longer
@pytest.mark.not_in_ci
def test_sql_over_an_archive_and_its_results(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    generate(ArchiveFiles(str(tmp_path / "archive")), PLAN, progress=lambda _: None)
    archive = open_archive(str(tmp_path / "archive"))
    analysis = analyze(LocalEngine(), archive, str(tmp_path / "out"), progress=lambda _: None)
    assert {"reports", "snapshots"} <= set(archive_views(spark, str(tmp_path / "archive")))
    assert table(spark, str(tmp_path / "archive"), "snapshots").count() == 60
    assert {"found_verdicts", "found_incidents", "found_pools", "found_risks"} <= set(
        result_views(spark, str(tmp_path / "out"))
    )
    (incident,) = analysis.incidents
    (row,) = spark.sql(SEEN).collect()
    assert list(row) == [incident.id, analysis.answers["deadlock"]["true"]]
    here = [list(row) for row in spark.sql(BY_DAY).collect()]
    assert sum(count for _, count in here) == 60
    with object_storage() as store:
        for name in CREDENTIALS:  # as a cluster's workers are told
            monkeypatch.setitem(spark.sparkContext.environment, name, os.environ[name])
        fs.copy_files(str(tmp_path / "out"), f"{BUCKET}/out", destination_filesystem=store)
        result_views(spark, f"s3://{BUCKET}/out")
        assert [list(row) for row in spark.sql(BY_DAY).collect()] == here
    plan = StreamPlan(out=str(tmp_path / "stream"))
    query = start(archive_stream(spark, archive.store.location, plan), plan, location=archive.store.location, once=True)
    assert query.awaitTermination(300)
    assert result_views(spark, plan.out) == ("found_verdicts",)
    assert spark.sql("select count(*) from found_verdicts where holds = 'true' and predicate = 'deadlock'").first() == (
        analysis.answers["deadlock"]["true"],
    )
    with pytest.raises(ArchiveError, match="there are no results here"):
        result_views(spark, str(tmp_path / "archive"))
