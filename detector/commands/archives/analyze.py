"""``stilltrue analyze``: evaluates a whole archive, on this machine or on Spark, and writes tables and a report."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import click

from detector.commands.options import completed_names as names
from detector.commands.options.day import Day
from detector.commands.options.shared_options import predicate_settings
from detector.commands.shared.run import CommandError
from detector.ops.progress_lines import CLEAR, ProgressLines

EPILOG = """\b
Examples:
  stilltrue analyze stilltrue-data/archive --out analysis
  stilltrue analyze archive --out analysis --since 2026-11-01 --until 2026-11-07 --predicate termination
  stilltrue analyze s3://bucket/archive --out s3://bucket/analysis --master spark://host:7077

Up to ten million reports are analysed on this machine, more on Spark, which needs Java 17 or newer and:
pip install 'stilltrue-detector[spark]'. Exit code: 0; 2 for wrong usage, no archive, or incomplete results.
"""
LOCAL_REPORTS_MAX = 10_000_000
LEFT_OUT_MAX = 10
"""Files named on standard error; the report and summary.json name all of them."""


@click.command(epilog=EPILOG)
@click.argument("archive", shell_complete=names.folders)
@click.option(
    "--out",
    required=True,
    shell_complete=names.folders,
    envvar="STILLTRUE_OUT",
    help="Directory or URI for the results; all Spark workers must reach it.",
)
@click.option(
    "--engine",
    type=click.Choice(["auto", "local", "spark"]),
    default="auto",
    show_default=True,
    envvar="STILLTRUE_ENGINE",
    show_envvar=True,
    help="Where to run; auto: local for up to ten million reports, unless --master is given.",
)
@click.option(
    "--master",
    envvar="STILLTRUE_MASTER",
    show_envvar=True,
    help="Spark master URL; default: all cores of this machine.",
)
@click.option("--since", type=Day(), help="First day (UTC).")
@click.option("--until", type=Day(), help="Last day (UTC), inclusive.")
@click.option(
    "--predicate",
    "predicates",
    multiple=True,
    shell_complete=names.predicates,
    help="Also evaluate this predicate; repeatable. deadlock and gridlock are always evaluated.",
)
@click.option(
    "--again",
    is_flag=True,
    help="Evaluate all days again, even if their files have not changed since the last analysis.",
)
@predicate_settings("STILLTRUE_ANALYZE_SET")
def analyze(
    archive: str,
    *,
    out: str,
    engine: str,
    master: str | None,
    since: datetime | None,
    until: datetime | None,
    predicates: tuple[str, ...],
    again: bool,
    settings: dict[str, dict[str, Any]],
) -> None:
    """Evaluate predicates over every snapshot of ARCHIVE (a directory or URI), and write tables and a report."""
    try:
        from detector.analysis.analyze import PREDICATES  # noqa: PLC0415 - Arrow is an extra
        from detector.analysis.analyze import analyze as run  # noqa: PLC0415
        from detector.analysis.engine import WorkerDiedError  # noqa: PLC0415
        from detector.analysis.result_folder import CountsError  # noqa: PLC0415
        from detector.archive.files import ArchiveError  # noqa: PLC0415
        from detector.core.registry import PluginError, UnknownPredicateError, find_predicates  # noqa: PLC0415
    except ImportError as error:
        raise CommandError(f"the pipeline needs pyarrow ({error}): pip install 'stilltrue-detector[archive]'") from None
    steps = _Steps()
    try:
        find_predicates((*predicates, *settings), settings)
        found = _opened(archive, since, until)
        if not found.rows("snapshots"):
            _name_left_out([(each.path, each.reason) for each in found.left_out])
            raise CommandError(f"{archive}: no snapshots{_between(since, until)}{_left_out(len(found.left_out))}")
        chosen = _engine(engine, master, found.rows("reports"))
        with (_local if chosen == "local" else _spark)(steps, master) as working:
            result = run(working, found, out, (*PREDICATES, *predicates), steps.begin, settings, again=again)
    except (ArchiveError, CountsError, PluginError, UnknownPredicateError, WorkerDiedError) as error:
        raise CommandError(str(error.args[0] if error.args else error)) from None
    except OSError as error:
        raise CommandError(f"{error.filename or out}: {error.strerror or error}") from None
    finally:
        steps.end()
    _name_left_out(result.left_out)
    for lost in result.lost():
        click.echo(f"incomplete: {lost}", err=True)
    counts = f"{result.snapshots} snapshots, {result.reports} reports in {steps.seconds():.0f} s"
    incidents = f"{len(result.incidents)} incident{'s' * (len(result.incidents) != 1)}"
    found_there = f"{incidents}, {len(result.near_misses)} {result.near_misses_text}{_left_out(len(result.left_out))}"
    click.echo(f"{counts}: {found_there}; report: {out}/report.html")


def _opened(archive: str, since: datetime | None, until: datetime | None) -> Any:
    from detector.archive.units import open_archive  # noqa: PLC0415 - Arrow is an extra

    try:
        return open_archive(archive, since=_day(since), until=_day(until))
    except OSError as error:
        raise CommandError(f"{archive}: {error.strerror or error}") from None


def _engine(asked: str, master: str | None, reports: int) -> str:
    """Choose the engine: local, unless Spark is requested or there are more than ``LOCAL_REPORTS_MAX`` reports."""
    if asked != "auto":
        return asked
    submitted = "SPARK_ENV_LOADED" in os.environ or "PYSPARK_GATEWAY_PORT" in os.environ
    return "spark" if master or submitted or reports > LOCAL_REPORTS_MAX else "local"


@contextmanager
def _local(steps: _Steps, master: str | None) -> Iterator[Any]:  # noqa: ARG001
    from detector.analysis.engine import LocalEngine, prepare_process  # noqa: PLC0415 - Arrow is an extra

    prepare_process()
    with LocalEngine(processes=os.cpu_count() or 1, progress=steps.parts) as engine:
        yield engine


@contextmanager
def _spark(steps: _Steps, master: str | None) -> Iterator[Any]:
    try:
        from detector.spark.engine import SETTINGS, SparkEngine, report_progress  # noqa: PLC0415 - Spark is an extra
        from detector.spark.java import JavaError  # noqa: PLC0415
        from detector.spark.session import (  # noqa: PLC0415
            SparkFailedError,
            interruptible,
            one_line_errors,
            open_session,
            stop_session,
        )
    except ImportError as error:
        raise CommandError(f"this engine needs PySpark ({error}): pip install 'stilltrue-detector[spark]'") from None
    steps.starting_spark()
    try:
        with interruptible():
            spark = open_session(master, SETTINGS, announced=True)
        try:
            with interruptible(), report_progress(spark, steps.parts), one_line_errors("Spark failed"):
                yield SparkEngine(spark, without_pandas=True)
        finally:
            stop_session(spark)
    except (JavaError, SparkFailedError) as error:
        raise CommandError(str(error.args[0] if error.args else error)) from None


class _Steps:
    """Prints a line for each step on standard error; on a terminal, also its progress."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._live = sys.stderr.isatty()
        self._lines = ProgressLines()

    def seconds(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._began

    def starting_spark(self) -> None:
        """Show for how long Spark has been starting, until the first step or its first part."""
        self._lines.wait("starting Spark ...")

    def begin(self, step: str) -> None:
        """Begin the next step."""
        self.end()
        click.echo(f"{self.seconds():6.1f} s  {step} ...", err=True)

    def end(self) -> None:
        """End the last step."""
        self._lines.end()
        if self._live:
            click.echo(CLEAR, err=True, nl=False)

    def parts(self, done: int, total: int) -> None:
        """Show how many of the step's parts are done."""
        self._lines.end()
        if self._live:
            click.echo(f"{CLEAR}{self.seconds():6.1f} s  {done} of {total} parts done", err=True, nl=False)


def _between(since: datetime | None, until: datetime | None) -> str:
    words = [(" from", since), (" to", until)]
    return "".join(f"{word} {_day(moment)}" for word, moment in words if moment is not None)


def _name_left_out(files: Sequence[tuple[str, str]]) -> None:
    for path, why in files[:LEFT_OUT_MAX]:
        click.echo(f"left out: {path}: {why}", err=True)
    if len(files) > LEFT_OUT_MAX:
        click.echo(f"left out: {len(files) - LEFT_OUT_MAX} more files", err=True)


def _day(moment: datetime | None) -> str:
    return "" if moment is None else moment.date().isoformat()


def _left_out(count: int) -> str:
    return f", {count} file{'s' * (count > 1)} left out" if count else ""
