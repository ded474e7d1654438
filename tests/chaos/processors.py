"""Whose the processors' time was: a promise to answer in time holds for those who are given time.

The load average would excuse too much: it counts our own threads, and remembers what was a minute ago.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path

OTHERS_MAX = 0.7
"""The share of all processors' time that others may take before ours can no longer be expected to answer in time."""
_TICKS = os.sysconf("SC_CLK_TCK")
_IDLE = (3, 4)
"""The fields of ``/proc/stat`` in which nobody ran: idle, and waiting for a disk. Stolen time counts as others'."""
_GUEST = 8
"""From here on, times are counted in other fields already."""


def busy_seconds() -> float:
    """What all processors have worked so far, for whomever."""
    fields = Path("/proc/stat").read_text().partition("\n")[0].split()[1:]
    return sum(int(field) for at, field in enumerate(fields[:_GUEST]) if at not in _IDLE) / _TICKS


def used_seconds(processes: Iterable[int]) -> float:
    """What these processes have used so far, with all their threads; one that has ended counts as none."""
    used = 0
    for process in processes:
        try:
            fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        used += int(fields[11]) + int(fields[12])
    return used / _TICKS


class Window:
    """From now on: how much of the processors others have taken."""

    def __init__(self, ours: Callable[[], Iterable[int]]) -> None:
        self._ours = ours
        self._begun = (time.monotonic(), busy_seconds(), used_seconds(ours()))

    def others(self) -> float:
        """Their share, between 0 and 1. What ours used before they were killed counts as others'."""
        begun, busy, used = self._begun
        capacity = (time.monotonic() - begun) * (os.cpu_count() or 1)
        taken = (busy_seconds() - busy) - max(0.0, used_seconds(self._ours()) - used)
        return min(1.0, max(0.0, taken / capacity))

    def starved(self) -> bool:
        """Whether others have left ours no time."""
        return self.others() > OTHERS_MAX
