"""Watches files that are reloaded when they change: certificates, keys, roles."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

Signature = tuple[tuple[int, int, int], ...]


class WatchedFiles:
    """Detects changes of files by modification time, size and inode (which a rename changes)."""

    def __init__(self, paths: Sequence[Path]) -> None:
        """``paths``: must all exist at each check."""
        self._paths = tuple(paths)
        self._taken: Signature = ()

    def changed(self) -> Signature | None:
        """The files' new signature if it has changed, else None. Raises ``OSError``."""
        stats = [path.stat() for path in self._paths]
        now = tuple((stat.st_mtime_ns, stat.st_size, stat.st_ino) for stat in stats)
        return None if now == self._taken else now

    def take(self, signature: Signature) -> None:
        """Record that the content with this signature is in use."""
        self._taken = signature
