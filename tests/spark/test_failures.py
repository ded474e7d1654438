"""What Spark cannot do is one line: no such master, no Spark, an error in a job."""

from __future__ import annotations

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from detector.spark.failures import SparkFailedError, plainly, reason
from detector.spark.session import open_session


def test_a_master_that_is_none_is_said_before_java_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("detector.spark.session.SparkSession.getActiveSession", lambda: None)
    monkeypatch.setattr("detector.spark.session.find_java", lambda: None)
    with pytest.raises(SparkFailedError, match=r"no master 'nonsense'; there are local, local\[2\], spark://"):
        open_session("nonsense")


def test_what_fails_in_a_worker_is_one_line(spark: SparkSession) -> None:
    def broken(batches: object) -> object:
        raise ValueError("no such thing")

    with pytest.raises(SparkFailedError) as caught, plainly("Spark failed"):
        spark.range(2).mapInArrow(broken, "id long").collect()  # type: ignore[arg-type]
    assert str(caught.value) == "Spark failed: no such thing"


def test_what_is_no_failure_of_sparks_goes_on() -> None:
    with pytest.raises(OSError, match="full"), plainly("Spark failed"):
        raise OSError("full")
    with pytest.raises(SparkFailedError, match=r"^it: gone$"), plainly("it"):
        raise PySparkException("gone")


def test_the_reason_in_a_page_of_java() -> None:
    text = "An error\n: org.x.SparkException: aborted\n\tat a.b(C.java:1)\nCaused by: java.io.IOException: No space left"
    assert reason(text) == "No space left"
