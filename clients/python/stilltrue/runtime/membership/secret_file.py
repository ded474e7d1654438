"""Checks the permissions of files with secrets or roles, which are worthless if every user may write to them."""

from __future__ import annotations

import stat
from pathlib import Path


def writable_by_all(path: str | Path) -> bool:
    """Whether every user of this machine may write to the file. Raises ``OSError``."""
    return bool(Path(path).stat().st_mode & stat.S_IWOTH)
