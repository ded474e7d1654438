"""The command `stilltrue analyze`: the Spark pipeline over an archive, its result tables and its report."""

from __future__ import annotations

import sys
import time
from datetime import datetime
from pathlib import Path
from typing import NoReturn

import click

EPILOG = """\b
Examples:
  stilltrue analyze stilltrue-data/archive --out analysis
  stilltrue analyze archive --out analysis --since 2026-11-01 --until 2026-11-07 --predicate termination
  stilltrue analyze s3://bucket/archive --out analysis --master spark://host:7077

Needs Java 17 or newer, and: pip install 'stilltrue-detector[spark]'. Exit code: 0; 2 for wrong usage, no archive or no Java.
"""


@click.command(epilog=EPILOG)
@click.argument("archive")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    required=True,
    envvar="STILLTRUE_OUT",
    help="Directory for the results.",
)
@click.option(
    "--master", envvar="STILLTRUE_MASTER", show_envvar=True, help="Spark's master; default: all cores of this machine."
)
@click.option("--since", type=click.DateTime(["%Y-%m-%d"]), help="The first day (UTC).")
@click.option("--until", type=click.DateTime(["%Y-%m-%d"]), help="The last day (UTC), included.")
@click.option(
    "--predicate",
    "predicates",
    multiple=True,
    help="Evaluate this one too; may be given again. deadlock and gridlock always are.",
)
def analyze(
    archive: str, *, out: Path, master: str | None, since: datetime | None, until: datetime | None, predicates: tuple[str, ...]
) -> None:
    """Evaluate predicates over every snapshot of ARCHIVE (a directory or URI), and write tables and a report."""
    try:
        from detector.archive.store import ArchiveError  # noqa: PLC0415 - Spark and Arrow are extras
        from detector.core.registry import PluginError, UnknownPredicateError, find_predicate  # noqa: PLC0415
        from detector.spark.analyze import PREDICATES  # noqa: PLC0415
        from detector.spark.analyze import analyze as run  # noqa: PLC0415
        from detector.spark.java import JavaError  # noqa: PLC0415
        from detector.spark.session import open_session  # noqa: PLC0415
        from detector.spark.tables import open_archive  # noqa: PLC0415
    except ImportError as error:
        _fail(f"the pipeline needs PySpark and pyarrow ({error}): pip install 'stilltrue-detector[spark]'")
    try:
        for name in predicates:
            find_predicate(name)
        found = open_archive(archive, since=_day(since), until=_day(until))
        if not found.rows("snapshots"):
            _fail(f"{archive}: no snapshots between these days" + _left_out(len(found.left_out)))
        began = time.monotonic()
        click.echo("starting Spark ...", err=True)
        spark = open_session(master)
        try:
            result = run(
                spark,
                found,
                out,
                (*PREDICATES, *predicates),
                progress=lambda step: click.echo(f"{time.monotonic() - began:6.1f} s  {step} ...", err=True),
            )
        finally:
            spark.stop()
    except (ArchiveError, PluginError, UnknownPredicateError, JavaError) as error:
        _fail(str(error.args[0] if error.args else error))
    except OSError as error:
        _fail(f"{error.filename or out}: {error.strerror or error}")
    seconds = time.monotonic() - began
    click.echo(
        f"{result.snapshots} snapshots, {result.reports} reports in {seconds:.0f} s: {len(result.incidents)} incidents, "
        f"near misses in {result.near_places} places{_left_out(len(result.left_out))}; report: {out / 'report.html'}"
    )


def _day(moment: datetime | None) -> str:
    return "" if moment is None else moment.date().isoformat()


def _left_out(count: int) -> str:
    return f", {count} files left out (see the report)" if count else ""


def _fail(text: str) -> NoReturn:
    click.echo(f"stilltrue: {text}", err=True)
    sys.exit(2)
