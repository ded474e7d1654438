"""Runs `stilltrue stream`: checks the options, starts Spark and the query, and follows it to its end."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql.streaming.query import StreamingQuery

from detector.analysis.results import CountsError
from detector.archive.files import ArchiveError, Store
from detector.core.registry import PluginError, Settings, UnknownPredicateError, find_predicates
from detector.spark.java import JavaError
from detector.spark.session import SparkFailedError, interruptible, open_session, plainly, reason
from detector.spark.source.data_source import SourceOptionError, wanted
from detector.spark.source.remote import RemoteError
from detector.spark.streaming.pipeline import StreamPlan, archive_stream, detector_stream, start
from detector.spark.streaming.progress import Progress, ProgressError

PREDICATES = ("deadlock", "gridlock")
POLL_SECONDS = 0.5


class StreamFailedError(RuntimeError):
    """It cannot begin, or ended with an error; one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What is asked for: of an ``archive``, or of a detector with these ``options`` (of the data source)."""

    archive: str | None
    options: Mapping[str, str]
    out: Path
    master: str | None
    predicates: tuple[str, ...]
    settings: Mapping[str, Settings]
    give_up_seconds: float
    late_seconds: float
    once: bool


def run(wish: Wish, progress: Callable[[str], None]) -> Progress:
    """Stream until it is over, or told to stop; the state at the end. Raises :class:`StreamFailedError`."""
    try:
        return _run(wish, progress)
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
        raise StreamFailedError(f"{error.filename or wish.out}: {error.strerror or error}") from None


def _run(wish: Wish, progress: Callable[[str], None]) -> Progress:
    asked = tuple(dict.fromkeys((*PREDICATES, *wish.predicates, *wish.settings)))
    find_predicates(asked, wish.settings)
    if wish.archive is not None:
        Store(wish.archive).check()
    else:
        wanted({**wish.options, "retry_seconds": "2"}).remote.ranges("snapshots")
    plan = StreamPlan(
        out=wish.out,
        predicates=asked,
        settings=wish.settings,
        give_up_seconds=wish.give_up_seconds,
        late_seconds=wish.late_seconds,
    )
    plan.out.mkdir(parents=True, exist_ok=True)
    plan.folder.last()  # of an earlier version it is refused before Spark starts
    progress("starting Spark ...")
    with interruptible():
        spark = open_session(wish.master)
    try:
        with plainly("Spark failed"):
            if wish.archive is None:
                pieces = detector_stream(spark, wish.options, plan)
            else:
                pieces = archive_stream(spark, wish.archive, plan)
            follow(start(pieces, plan, location=wish.archive or "", once=wish.once), progress)
    finally:
        spark.stop()
    return plan.folder.last()


def follow(query: StreamingQuery, progress: Callable[[str], None]) -> None:
    """Wait until the query ends; ctrl-C and SIGTERM end it. ``progress`` is told of each micro-batch.

    Raises
    ------
    StreamFailedError
        When it ends with an error.
    """
    told = -1
    with _until_told_to_stop() as stop:
        while query.isActive and not stop.wait(POLL_SECONDS):
            told = _tell(query, told, progress)
        _tell(query, told, progress)
        if stop.is_set():
            query.stop()
            return
    failed = query.exception()
    if failed is not None:
        raise StreamFailedError(reason(str(failed)))


@contextmanager
def _until_told_to_stop() -> Iterator[threading.Event]:
    """Set by SIGINT and SIGTERM: an exception in the middle of a word to Java would leave a traceback."""
    stop = threading.Event()
    signals = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, lambda *_: stop.set()) for number in signals}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _tell(query: StreamingQuery, told: int, progress: Callable[[str], None]) -> int:
    last = query.lastProgress
    if last is None or last["batchId"] == told or not last["numInputRows"]:
        return told
    seconds = last["durationMs"].get("triggerExecution", 0) / 1000
    progress(f"batch {last['batchId']} in {seconds:.1f} s")
    return int(last["batchId"])
