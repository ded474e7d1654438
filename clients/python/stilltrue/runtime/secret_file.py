"""Files that hold a secret, or say who may do what: worth nothing where everybody may write to them."""

from __future__ import annotations

import stat
from pathlib import Path


def writable_by_all(path: str | Path) -> bool:
    """Whether everybody on this machine may change the file. Raises ``OSError``."""
    return bool(Path(path).stat().st_mode & stat.S_IWOTH)
