"""``stilltrue compact``: merges an archive's small files, a day at a time."""

from __future__ import annotations

import time
from datetime import datetime

import click

from detector.commands.options import completed_names as names
from detector.commands.options.day import Day
from detector.commands.shared.run import CommandError

EPILOG = """\b
Examples:
  stilltrue compact stilltrue-data/archive
  stilltrue compact s3://bucket/archive --until 2026-11-18

A detector does this by itself (--compact-seconds-min). It is safe beside readers and running streams, and can be interrupted
at any time. Exit code: 0; 2 for wrong usage, no archive, or when another compaction is running.
"""


@click.command(epilog=EPILOG)
@click.argument("archive", shell_complete=names.folders)
@click.option("--until", type=Day(), help="Last day (UTC), inclusive; default: the day before yesterday.")
@click.option(
    "--mebibytes-target",
    type=click.IntRange(1, 2**20),
    default=256,
    show_default=True,
    help="Approximate target size of the merged files.",
)
def compact(archive: str, *, until: datetime | None, mebibytes_target: int) -> None:
    """Merge the small files of ARCHIVE (a directory or URI): readers see the old files or the new one, never both."""
    try:
        from detector.archive.compact import SECONDS_MIN, last_day  # noqa: PLC0415 - pyarrow is an extra
        from detector.archive.compact import compact as run  # noqa: PLC0415
        from detector.archive.files import ArchiveError, ArchiveFiles  # noqa: PLC0415
    except ImportError:
        raise CommandError("archives need pyarrow: pip install 'stilltrue-detector[archive]'") from None
    day = last_day(time.time(), SECONDS_MIN) if until is None else until.date().isoformat()
    try:
        store = ArchiveFiles(archive)
        store.check()
        done = run(store, bytes_target=mebibytes_target * 2**20, until=day)
    except (ArchiveError, OSError) as error:
        raise CommandError(str(error)) from None
    for left in done.left_out:
        click.echo(f"left out: {left.path}: {left.reason}", err=True)
    click.echo(f"up to {day}: {done.before} files became {done.after}" if done.before else f"up to {day}: nothing to merge")
