"""Shows to this process's parent that the process has joined a detector: an open descriptor with a name.

The parent, which looks for work of which no member knows, finds the name under ``/proc``; nothing is written to any disk that
outlives the process. Without such a file a member's parent takes it for a program without an agent.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from stilltrue.runtime.introspection.linux.child_processes import MARK, clock


class MemberMark:
    """The mark of one process, or none."""

    def __init__(self) -> None:
        self._descriptor: int | None = None

    def set(self, since: float | None = None) -> None:
        """Show that this process is a member. Does nothing if it is shown already, or the system offers no such file.

        ``since``: when it joined, by :func:`clock` (None: now).
        """
        if self._descriptor is not None and self._is_ours(self._descriptor):
            return
        name = f"{MARK}:{clock() if since is None else since:.3f}:"
        with contextlib.suppress(OSError):
            self._descriptor = _nameless_file(name)

    def clear(self) -> None:
        """Show it no longer: the process has left, or is a forked child."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None and self._is_ours(descriptor):
            with contextlib.suppress(OSError):
                os.close(descriptor)

    @staticmethod
    def _is_ours(descriptor: int) -> bool:
        """Whether it is still the mark: a daemon closes all descriptors, and the number may be another file's now."""
        try:
            return MARK in str(Path(f"/proc/self/fd/{descriptor}").readlink())
        except OSError:
            return False


def _nameless_file(name: str) -> int:
    """An open file in no folder, whose name only its descriptor shows."""
    if hasattr(os, "memfd_create"):
        with contextlib.suppress(OSError):  # forbidden here
            return os.memfd_create(name)
    path = Path("/dev/shm") / f"{name}{os.getpid()}"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    path.unlink()
    return descriptor
