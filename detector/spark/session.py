"""A Spark session for the pipeline: local on loopback by default, or on a cluster's master."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from pyspark.sql import SparkSession

from detector.spark.java import find_java

LOCAL = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "16",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}
"""Python does the work here: a Java that starts in half the time is worth more than one that optimises for long."""
ALWAYS = {
    "spark.sql.execution.arrow.maxRecordsPerBatch": "16384",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(2**31 - 1),  # any other limit is checked per row, at a row's cost each
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",  # a day stays the text that it is
    "spark.sql.adaptive.coalescePartitions.parallelismFirst": "false",
    "spark.log.level": "ERROR",
}
"""What the pipeline wants of every session. The cluster's own settings (memory, cores) come from spark-submit."""


def open_session(master: str | None = None, settings: Mapping[str, str] | None = None) -> SparkSession:
    """The session to work in: the running one if there is one, else a new one.

    Parameters
    ----------
    master : Spark's master; None: what spark-submit says, else all cores of this machine.
    settings : more of Spark's settings; they win.

    Raises
    ------
    detector.spark.java.JavaError
        When there is no Java that Spark can run on.
    """
    running = SparkSession.getActiveSession()
    if running is not None:
        return running
    submitted = "SPARK_ENV_LOADED" in os.environ or "PYSPARK_GATEWAY_PORT" in os.environ
    if not submitted:
        find_java()
    chosen = master or (None if submitted else "local[*]")
    builder = SparkSession.builder.appName("stilltrue")
    local = chosen is not None and chosen.startswith("local")
    if chosen is not None:
        builder = builder.master(chosen)
    if local:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # the workers' Python is ours, not the PATH's
    memory = {"spark.driver.memory": f"{_driver_gigabytes()}g"} if local else {}
    for name, value in {**ALWAYS, **(LOCAL if local else {}), **memory, **(settings or {})}.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def _driver_gigabytes() -> int:
    """A quarter of the machine's memory, between 1 and 8 GiB: the Python processes need the rest."""
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return 1
    return int(min(8, max(1, total // 2**32)))
