"""Runs `stilltrue stream`: checks the options, starts Spark and the query, and waits for its end."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql.streaming.query import StreamingQuery

from detector.analysis.result_folder import CountsError, check_unoccupied
from detector.archive.files import ArchiveError, ArchiveFiles
from detector.core.registry import PluginError, PredicateSettings, UnknownPredicateError, find_predicates
from detector.ops.address import Address
from detector.ops.process.stop_signal import stopped_by_signals
from detector.ops.progress_lines import ProgressLines
from detector.spark.java import JavaError
from detector.spark.session import SparkFailedError, interruptible, one_line_errors, open_session, reason, stop_session
from detector.spark.source.data_source import SourceOptionError, source_options
from detector.spark.source.detector_client import RemoteError
from detector.spark.streaming.metrics import served
from detector.spark.streaming.pipeline import archive_stream, detector_stream, start
from detector.spark.streaming.plan import StreamPlan
from detector.spark.streaming.progress import Progress, ProgressError

PREDICATES = ("deadlock", "gridlock")
POLL_SECONDS = 0.5


class StreamFailedError(RuntimeError):
    """A stream cannot start, or failed; the message is one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOptions:
    """The options of a stream, from an ``archive`` or from a detector with these ``options`` of the data source."""

    archive: str | None
    options: Mapping[str, str]
    out: str
    state: str
    master: str | None
    predicates: tuple[str, ...]
    settings: Mapping[str, PredicateSettings]
    give_up_seconds: float
    late_seconds: float
    metrics: Address | None
    once: bool


def run(stream: StreamOptions, progress: ProgressLines) -> Progress:
    """Stream to the end, or until stopped; return the final state. Raises :class:`StreamFailedError`."""
    try:
        return _run(stream, progress)
    except (
        ArchiveError,
        CountsError,
        PluginError,
        UnknownPredicateError,
        JavaError,
        ProgressError,
        RemoteError,
        SourceOptionError,
        SparkFailedError,
    ) as error:
        raise StreamFailedError(str(error.args[0] if error.args else error)) from None
    except OSError as error:
        raise StreamFailedError(f"{error.filename or stream.out}: {' '.join(str(error.strerror or error).split())}") from None
    finally:
        progress.end()


def _run(stream: StreamOptions, progress: ProgressLines) -> Progress:
    asked = tuple(dict.fromkeys((*PREDICATES, *stream.predicates, *stream.settings)))
    find_predicates(asked, stream.settings)
    if stream.archive is not None:
        ArchiveFiles(stream.archive).check()
    else:
        source_options({**stream.options, "retry_seconds": "2"}).remote.ranges("snapshots")
    plan = StreamPlan(
        out=stream.out,
        state=stream.state,
        predicates=asked,
        settings=stream.settings,
        give_up_seconds=stream.give_up_seconds,
        late_seconds=stream.late_seconds,
    )
    check_unoccupied(plan.out, own=("_stream", "verdicts/batch="))
    plan.folder.end(plan.folder.begin())  # report problems with the storage or the state before Spark starts
    before = plan.folder.last_with_results()
    if before.predicates and (more := [name for name in asked if name not in before.predicates]):
        finished = f"{before.finished_count()} finished snapshots are not judged again"
        progress.say(
            f"{', '.join(more)}: evaluated from now on; {finished} (use {plan.folder.another}, or 'stilltrue analyze')"
        )
    with nullcontext() if stream.metrics is None else served(plan.folder, stream.metrics.host, stream.metrics.port) as port:
        if stream.metrics is not None:
            progress.say(f"metrics: http://{replace(stream.metrics, port=port or 0)}/metrics")
        return _stream(stream, plan, progress)


def _stream(stream: StreamOptions, plan: StreamPlan, progress: ProgressLines) -> Progress:
    progress.wait("starting Spark ...")
    with interruptible():
        spark = open_session(stream.master, announced=True)
    try:
        with one_line_errors("Spark failed"):
            with interruptible():
                if stream.archive is None:
                    pieces = detector_stream(spark, stream.options, plan)
                else:
                    pieces = archive_stream(spark, stream.archive, plan)
                query = start(pieces, plan, location=stream.archive or "", once=stream.once)
            source = stream.archive or stream.options["address"]
            progress.wait(f"reading {source} (the first batch takes longest: it starts Spark's workers) ...")
            follow(query, progress)
    finally:
        stop_session(spark)
    return plan.folder.last()


def follow(query: StreamingQuery, progress: ProgressLines) -> None:
    """Wait until the query ends; ctrl-C and SIGTERM stop it. Print a line for each micro-batch.

    Raises
    ------
    StreamFailedError
        If the query fails.
    """
    shown = -1
    with stopped_by_signals() as stop:  # an exception during a call to Java would print a traceback
        try:
            while query.isActive and not stop.wait(POLL_SECONDS):
                shown = _show(query, shown, progress)
            _show(query, shown, progress)
            if stop.is_set():
                query.stop()
                return
        except (PySparkException, Py4JError, OSError):
            if not stop.is_set():
                raise
            return  # the signal went to the whole process group, and has ended Java, too
    failed = query.exception()
    if failed is not None:
        raise StreamFailedError(reason(str(failed)))


def _show(query: StreamingQuery, shown: int, progress: ProgressLines) -> int:
    last = query.lastProgress
    if last is None or last["batchId"] == shown or not last["numInputRows"]:
        return shown
    seconds = last["durationMs"].get("triggerExecution", 0) / 1000
    progress.say(f"batch {last['batchId']} in {seconds:.1f} s")
    return int(last["batchId"])
