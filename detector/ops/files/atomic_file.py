"""Atomic file writes: a reader finds the old content or the new, never a part, even after a crash."""

from __future__ import annotations

import os
from pathlib import Path
from uuid import uuid4


def write_atomically(path: Path, data: bytes | memoryview) -> None:
    """Replace ``path`` with ``data``; its directory must exist. Raises ``OSError``, leaving ``path`` unchanged."""
    temporary = path.with_name(f".{path.name}.{uuid4().hex[:8]}")
    try:
        with temporary.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync(path.parent)


def sync(path: Path) -> None:
    """Flush a file or directory to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
