"""A Spark session for the pipeline: local on loopback by default, or on a cluster's master.

What goes wrong is one line: no Java, a master that there is not, an error in a job.
"""

from __future__ import annotations

import logging
import os
import re
import signal
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
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
}
"""Settings of every session. Those of the cluster (memory, cores) come from spark-submit."""

LOG_LEVEL = "STILLTRUE_SPARK_LOG_LEVEL"
"""Of a local session only what ends it is logged, unless this says otherwise: what fails, fails with a line of ours."""
INTERRUPTED, TERMINATED = 130, 143
TASK_FAILURES_MAX = 4
_own_stderr = [2]
"""The file descriptor of standard error."""
PYTHON_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger", "pyspark", "py4j")
"""Spark's own in this process; each error of theirs is a page of JSON."""
_MASTER = re.compile(r"local(-cluster)?(\[[^\]]+\])?|spark://\S+:\d+|k8s://.+|yarn")


class SparkFailedError(RuntimeError):
    """Spark did not start, or could not go on; one line that says why."""


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
    SparkFailedError
        When it does not start, or there is no such master.
    """
    running = SparkSession.getActiveSession()
    if running is not None:
        return running
    submitted = "SPARK_ENV_LOADED" in os.environ or "PYSPARK_GATEWAY_PORT" in os.environ
    if not submitted:
        find_java()
    chosen = master or (None if submitted else "local[*]")
    if chosen is not None and not _MASTER.fullmatch(chosen):
        raise SparkFailedError(
            f"{chosen!r} is not a valid master; use local, local[2], spark://HOST:PORT, yarn, k8s://HOST:PORT"
        )
    builder = SparkSession.builder.appName("stilltrue")
    local = chosen is not None and chosen.startswith("local")
    if chosen is not None:
        builder = builder.master(_retrying(chosen))
    if local:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # the workers' Python is ours, not the PATH's
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # or it warns of every other address
    memory = {"spark.driver.memory": f"{_driver_gigabytes()}g"} if local else {}
    level = os.environ.get(LOG_LEVEL, "FATAL" if local else "ERROR")
    for name, value in {**ALWAYS, "spark.log.level": level, **(LOCAL if local else {}), **memory, **(settings or {})}.items():
        builder = builder.config(name, value)
    quiet = local and LOG_LEVEL not in os.environ
    with plainly("Spark did not start"), _java_unheard() if quiet else nullcontext():
        session = builder.getOrCreate()
        session.sparkContext.setLogLevel(level)
    for name in PYTHON_LOGGERS if quiet else ():
        logging.getLogger(name).setLevel(logging.CRITICAL)
    return session


@contextmanager
def _java_unheard() -> Iterator[None]:
    """Discards what Java writes to standard error; if it does not start, the last line becomes part of the error."""
    sys.stderr.flush()
    own = os.dup(2)
    with tempfile.TemporaryFile() as heard:
        os.dup2(heard.fileno(), 2)
        _own_stderr.append(own)
        try:
            yield
        except PySparkException as error:
            heard.seek(0)
            raise SparkFailedError(f"Spark did not start: {reason(heard.read().decode(errors='replace'))}") from error
        finally:
            os.dup2(own, 2)
            _own_stderr.pop()
            os.close(own)


def _retrying(master: str) -> str:
    """A local master gives a task up at its first failure, unless it says how often it tries: a worker may die."""
    local = re.fullmatch(r"local(?:\[([^,\]]+)\])?", master)
    return f"local[{local[1] or 1},{TASK_FAILURES_MAX}]" if local else master


def _driver_gigabytes() -> int:
    """A quarter of the machine's memory, between 1 and 8 GiB: the Python processes need the rest."""
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return 1
    return int(min(8, max(1, total // 2**32)))


@contextmanager
def plainly(what: str) -> Iterator[None]:
    """Spark's errors in the block become :class:`SparkFailedError`, beginning with ``what``."""
    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise SparkFailedError(f"{what}: {reason(str(error))}") from error


@contextmanager
def interruptible() -> Iterator[None]:
    """Ctrl-C or SIGTERM in the block ends the process at once, and Java goes when it sees that.

    An exception in the middle of a word to Java would leave pages; one while Java starts would take away the file in which
    Java says where it listens, and leave Java behind forever.
    """

    def end(number: int, _: object) -> None:
        os.write(_own_stderr[-1], b"\nstilltrue: interrupted\n")
        os._exit(INTERRUPTED if number == signal.SIGINT else TERMINATED)

    before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def reason(text: str) -> str:
    """The message of our own exception within Spark's report: the last line that names an error."""
    lines = [line.strip() for line in text.splitlines() if not line.startswith(("  ", "\t"))]
    for kind in ("Error: ", "Exception: "):
        named = [line for line in lines if kind in line and not line.startswith("[")]
        if named:
            return named[-1].partition(kind)[2]
    return next((line for line in lines if line), "it ended")
