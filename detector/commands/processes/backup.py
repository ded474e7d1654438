"""``stilltrue backup``: copies a detector's state, even while it runs."""

from __future__ import annotations

from pathlib import Path

import click

from detector.commands.shared.run import CommandError
from detector.core.counting import counted
from detector.service.storage.backup import BackupError, back_up
from detector.service.storage.sqlite import DamagedError

EPILOG = """\b
Example:
  stilltrue backup --data stilltrue-data /backups/2026-11-22
  stilltrue restore /backups/2026-11-22 --data stilltrue-data

Exit code: 0; 2 if there is no state, or TARGET is not empty.
"""


@click.command(epilog=EPILOG)
@click.argument("target", type=click.Path(path_type=Path, file_okay=False))
@click.option(
    "--data", default=Path("stilltrue-data"), show_default=True, type=click.Path(path_type=Path, file_okay=False),
    envvar="STILLTRUE_SERVE_DATA", show_envvar=True, help="Directory of the detector's state (serve --data).",
)  # fmt: skip
def backup(target: Path, *, data: Path) -> None:
    """Copy the detector's state to the directory TARGET: incidents, snapshots and archive. It may be running."""
    try:
        files = back_up(data, target)
    except (BackupError, DamagedError, OSError) as error:
        raise CommandError(str(error)) from None
    click.echo(f"backed up {data} to {target}: {counted(files, 'file')}")
