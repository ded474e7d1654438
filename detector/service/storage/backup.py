"""Backs up a detector's state while it runs, and restores it to an empty directory. Works on files, not on the service.

A backup holds the SQLite file as of one instant, the archive's files (which never change once they have their names), the
journal, and ``backup.json``, which is written last: without it, a directory is not a backup.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sqlite3
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from detector.ops.files.atomic_file import write_atomically
from detector.service.storage.sqlite import MIGRATIONS, DamagedError, NewerStateError, lock_directory, state_file

MANIFEST = "backup.json"
_WHOLE = ("archive-id", "archive-journal")
_ARCHIVE = "archive"


class BackupError(Exception):
    """A backup cannot be made or used; the message is one line."""


def back_up(data: Path, target: Path) -> int:
    """Copy the state in ``data`` to ``target``, which must be empty or not exist; returns the number of files.

    Raises :class:`BackupError`, ``DamagedError`` and ``OSError``; then ``target`` is empty again.
    """
    if not state_file(data).exists():
        raise BackupError(f"{data}: contains no detector state; --data names the directory of 'stilltrue serve --data'")
    if target.exists() and any(target.iterdir()):
        raise BackupError(f"{target}: not empty; choose an empty or a new directory")
    target.mkdir(parents=True, exist_ok=True)
    try:
        version = _copy_database(state_file(data), state_file(target))
        files = 1 + _copy_rest(data, target)
        manifest = {"schema": version, "made": datetime.now(UTC).isoformat(timespec="seconds"), "files": files}
        write_atomically(target / MANIFEST, json.dumps(manifest).encode())
    except BaseException:
        _empty(target)  # so that the same command can be repeated
        raise
    return files


def _empty(folder: Path) -> None:
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def restore(source: Path, data: Path) -> int:
    """Restore a backup to ``data``, which must hold no state; returns the number of files.

    Raises :class:`BackupError`, and :class:`~detector.service.storage.sqlite.DirectoryInUseError`.
    """
    try:
        manifest = json.loads((source / MANIFEST).read_text(encoding="utf-8"))
        version = int(manifest["schema"])
    except (OSError, ValueError, KeyError, TypeError):
        raise BackupError(f"{source}: not a complete backup ({MANIFEST} is missing or cannot be read)") from None
    if version > len(MIGRATIONS):
        raise NewerStateError(f"{source}: made by a later version (schema {version}; this one supports {len(MIGRATIONS)})")
    lock = lock_directory(data)
    try:
        if state_file(data).exists():
            raise BackupError(f"{data}: already holds state; give an empty directory, or move the state away")
        files = _copy_rest(source, data)
        aside = state_file(data).with_suffix(".part")
        _copy_database(state_file(source), aside)
        aside.replace(state_file(data))
    finally:
        os.close(lock)
    return 1 + files


def _copy_database(source: Path, target: Path) -> int:
    """Copy the database as of one instant and check the copy; returns its schema version."""
    target.unlink(missing_ok=True)
    try:
        with (
            contextlib.closing(sqlite3.connect(f"{source.absolute().as_uri()}?mode=ro", uri=True, timeout=5)) as there,
            contextlib.closing(sqlite3.connect(target)) as here,
        ):
            there.backup(here, pages=1024)
            (health,) = here.execute("PRAGMA quick_check(1)").fetchone()
            (version,) = here.execute("PRAGMA user_version").fetchone()
    except sqlite3.Error as error:
        raise BackupError(f"cannot copy {source} to {target}: {error}") from None
    if health != "ok":
        raise DamagedError(f"{source}: {health}")
    return int(version)


def _copy_rest(source: Path, target: Path) -> int:
    count = 0
    for path in _files(source):
        to = target / path.relative_to(source)
        to.parent.mkdir(parents=True, exist_ok=True)
        try:
            shutil.copy2(path, to)
        except FileNotFoundError:  # compacted or expired in the meantime
            continue
        count += 1
    return count


def _files(folder: Path) -> Iterator[Path]:
    """The files to copy, journal first: rows that leave it for a file in the meantime are then copied with the file."""
    yield from (folder / name for name in _WHOLE if (folder / name).exists())
    yield from sorted(path for path in (folder / _ARCHIVE).rglob("*.parquet") if not path.name.startswith("_"))
