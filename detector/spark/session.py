"""A Spark session for the pipeline: local on loopback by default, or on a cluster's master.

Errors are one line each: no Java, an invalid master, a failed job.
"""

from __future__ import annotations

import logging
import os
import re
import shlex
import signal
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

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
}
JAVA = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:MetaspaceSize=256m"
    " -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)
"""Options of a local session's Java. Since Python does the work, a short start-up matters more than optimized code. Spark's own
classes are not verified at each start, and loading them triggers no full collection."""
CLASSES = "STILLTRUE_SPARK_CLASSES"
"""Environment variable that names a file in which Java shares classes between local sessions; it is created if missing."""
ALWAYS = {
    "spark.sql.execution.arrow.maxRecordsPerBatch": "16384",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(2**31 - 1),  # a smaller limit is checked for each row, which is slow
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",  # a day remains a string
    "spark.sql.adaptive.coalescePartitions.parallelismFirst": "false",
}
"""Settings of every session. Cluster settings (memory, cores) come from spark-submit."""

LOG_LEVEL = "STILLTRUE_SPARK_LOG_LEVEL"
"""Environment variable that sets Spark's log level. A local session logs only fatal errors by default: ours report the rest."""
INTERRUPTED, TERMINATED = 130, 143
TASK_FAILURES_MAX = 4
STARTING = "starting Spark: the first rows take 20 seconds, or a minute on a busy machine ..."
_own_stderr = [2]
"""The file descriptor of standard error."""
PYTHON_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger", "pyspark", "py4j")
"""Spark's loggers in this process, which write each error as a page of JSON."""
_OF_GRPC = re.compile(r"[IWEF]\d{4} [\d:.]+ +\d+ \S+\.cc:\d+\]")
_MASTER = re.compile(r"local(-cluster)?(\[[^\]]+\])?|spark://\S+:\d+|k8s://.+|yarn")


class SparkFailedError(RuntimeError):
    """Spark did not start, or failed; the message is one line with the reason."""


def open_session(
    master: str | None = None, settings: Mapping[str, str] | None = None, *, announced: bool = False
) -> SparkSession:
    """Return the running session if there is one, else a new one, which takes a while; a person who watches is told.

    Parameters
    ----------
    master : Spark's master; None: that of spark-submit, else all cores of this machine.
    settings : further settings of Spark, which override ours.
    announced : the caller has said that Spark starts.

    Raises
    ------
    detector.spark.java.JavaError
        If there is no suitable Java.
    SparkFailedError
        If Spark does not start, or the master is invalid.
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
    if not announced and _is_watched():
        print(STARTING, file=sys.stderr)  # noqa: T201 - nothing else appears for up to a minute
    builder = SparkSession.builder.appName("stilltrue")
    local = chosen is not None and chosen.startswith("local")
    if chosen is not None:
        builder = builder.master(_retrying(chosen))
    if local:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # workers use this Python, not that on the PATH
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # otherwise it warns of every other address
    java = {"spark.driver.memory": f"{_driver_gigabytes()}g", "spark.driver.extraJavaOptions": java_options()}
    own = {**LOCAL, **java, **python_options()} if local else {}
    level = os.environ.get(LOG_LEVEL, "FATAL" if local else "ERROR")
    for name, value in {**ALWAYS, "spark.log.level": level, **own, **(settings or {})}.items():
        builder = builder.config(name, value)
    quiet = local and LOG_LEVEL not in os.environ
    with one_line_errors("Spark did not start"), _silent_java() if quiet else nullcontext():
        session = builder.getOrCreate()
        session.sparkContext.setLogLevel(level)
    if quiet:
        _silence_python(session)
    return session


def _silence_python(session: SparkSession) -> None:
    """Silence what Spark's part in this process logs or prints of each error, among them that Java has ended first."""
    for name in PYTHON_LOGGERS:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(_is_not_of_py4j)  # which logs some errors at the root
    server = getattr(session.sparkContext, "_accumulatorServer", None)
    if server is not None:
        server.handle_error = lambda *_: None


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    return "py4j" not in Path(record.pathname).parts


def stop_session(session: SparkSession) -> None:
    """Stop ``session``, also if its Java has ended: a signal to the whole process group ends both."""
    with suppress(Py4JError, OSError):
        session.stop()


@contextmanager
def _silent_java() -> Iterator[None]:
    """Discard Java's output to standard error during the block; if Java does not start, its last line goes into the error."""
    sys.stderr.flush()
    own = os.dup(2)
    with tempfile.TemporaryFile() as output:
        os.dup2(output.fileno(), 2)
        _own_stderr.append(own)
        try:
            yield
        except PySparkException as error:
            output.seek(0)
            raise SparkFailedError(f"Spark did not start: {reason(output.read().decode(errors='replace'))}") from error
        finally:
            os.dup2(own, 2)
            _own_stderr.pop()
            os.close(own)


def _retrying(master: str) -> str:
    """Add retries to a local master, since a worker may die: by default it aborts a task at its first failure."""
    local = re.fullmatch(r"local(?:\[([^,\]]+)\])?", master)
    return f"local[{local[1] or 1},{TASK_FAILURES_MAX}]" if local else master


def java_options() -> str:
    """Return the options of a local session's Java. It reads the file that :data:`CLASSES` names, or writes it at exit."""
    shared = os.environ.get(CLASSES)
    if not shared:
        return JAVA
    file = Path(shared).absolute()
    use = "SharedArchiveFile" if file.exists() else "ArchiveClassesAtExit"
    return f"{JAVA} -Xlog:disable {shlex.quote(f'-XX:{use}={file}')}"


def python_options() -> dict[str, str]:
    """Return the settings of a local session's Python workers. Only this Python certainly has our module that starts them."""
    if os.environ.get("PYSPARK_PYTHON", sys.executable) != sys.executable:
        return {}
    return {"spark.python.daemon.module": f"{__package__}.python_daemon"}


def _is_watched() -> bool:
    """Whether a person sees standard error: in a terminal, or in a notebook."""
    return sys.stderr.isatty() or "ipykernel" in sys.modules


def _driver_gigabytes() -> int:
    """Return a quarter of the machine's memory, from 1 to 8 GiB: the Python processes need the rest."""
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return 1
    return int(min(8, max(1, total // 2**32)))


@contextmanager
def one_line_errors(what: str) -> Iterator[None]:
    """Convert Spark's errors in the block to :class:`SparkFailedError`, whose message begins with ``what``."""
    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise SparkFailedError(f"{what}: {reason(str(error))}") from error


@contextmanager
def interruptible() -> Iterator[None]:
    """End the process at once on Ctrl-C or SIGTERM during the block; Java then ends by itself.

    An exception during a call to Java would print pages of traceback; an exception while Java starts would delete the file in
    which Java announces its port, and leave Java running forever.
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


_PACKAGE = __name__.partition(".")[0]
_SAME_PACKAGES = "workers need the driver's packages: start the driver, too, with the Python of the environment that they get"
"""In a checkout this package has another name than in its wheel, so workers with the wheel do not find it."""


def reason(text: str) -> str:
    """Extract our own exception's message from Spark's report: the last line that names an error. gRPC's log is no report."""
    every = (line.strip() for line in text.splitlines() if not line.startswith(("  ", "\t")))
    lines = [line for line in every if not _OF_GRPC.match(line)]
    for kind in ("Error: ", "Exception: "):
        named = [line for line in lines if kind in line and not line.startswith("[")]
        if named:
            told = named[-1].partition(kind)[2]
            return f"{told} in a worker; {_SAME_PACKAGES}" if told.startswith(f"No module named '{_PACKAGE}") else told
    return next((line for line in lines if line), "it ended without a message")
