"""Checks files that hold secrets or roles: they are worthless if everybody may write to them."""

from __future__ import annotations

import stat
from pathlib import Path


def writable_by_all(path: str | Path) -> bool:
    """Whether everybody on this machine may change the file. Raises ``OSError``."""
    return bool(Path(path).stat().st_mode & stat.S_IWOTH)
