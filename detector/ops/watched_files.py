"""Files that are read anew when they change: certificates, keys, roles."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

Signature = tuple[tuple[int, int, int], ...]


class WatchedFiles:
    """Says whether files have changed since they were last taken: by time, size and inode, as a rename changes that."""

    def __init__(self, paths: Sequence[Path]) -> None:
        """``paths``: all of them must be there whenever they are looked at."""
        self._paths = tuple(paths)
        self._taken: Signature = ()

    def changed(self) -> Signature | None:
        """What they look like now, if that is news; None otherwise. Raises ``OSError``."""
        stats = [path.stat() for path in self._paths]
        now = tuple((stat.st_mtime_ns, stat.st_size, stat.st_ino) for stat in stats)
        return None if now == self._taken else now

    def take(self, signature: Signature) -> None:
        """Their content of that look is in use."""
        self._taken = signature
