"""``stilltrue restore``: restores a backup of a detector's state to an empty directory."""

from __future__ import annotations

from pathlib import Path

import click

from detector.commands.shared.run import CommandError
from detector.core.counting import counted
from detector.service.storage.backup import BackupError
from detector.service.storage.backup import restore as restore_backup
from detector.service.storage.sqlite import DamagedError, DirectoryInUseError, NewerStateError

EPILOG = """\b
Example:
  stilltrue restore /backups/2026-11-22 --data stilltrue-data

Snapshot numbers still only rise: agents report the highest they have seen. Exit code: 0; 2 if SOURCE is not a backup or was
made by a later version, or if the directory is in use or holds state.
"""


@click.command(epilog=EPILOG)
@click.argument("source", type=click.Path(path_type=Path, file_okay=False, exists=True))
@click.option(
    "--data", default=Path("stilltrue-data"), show_default=True, type=click.Path(path_type=Path, file_okay=False),
    envvar="STILLTRUE_SERVE_DATA", show_envvar=True, help="Directory to restore to (serve --data); must hold no state.",
)  # fmt: skip
def restore(source: Path, *, data: Path) -> None:
    """Restore the backup SOURCE to a detector's directory, which must hold no state."""
    try:
        files = restore_backup(source, data)
    except (BackupError, NewerStateError, DirectoryInUseError, DamagedError, OSError) as error:
        raise CommandError(str(error)) from None
    click.echo(f"restored {source} to {data}: {counted(files, 'file')}")
