"""Files written in one step: a reader finds the old content or the new, never a part of it, also after a crash."""

from __future__ import annotations

import os
from pathlib import Path
from uuid import uuid4


def write_atomically(path: Path, data: bytes | memoryview) -> None:
    """Replace ``path`` with ``data``; its directory must exist. Raises ``OSError`` and then leaves ``path`` as it was."""
    beside = path.with_name(f".{path.name}.{uuid4().hex[:8]}")
    try:
        with beside.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    sync(path.parent)


def sync(path: Path) -> None:
    """Wait until a file's or directory's content is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
