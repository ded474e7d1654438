"""What runs for this process without Python: armed timer descriptors of Linux, and threads that Python has not started.

Also what makes the system send it a signal: a limit of processor time, and descriptors that announce by SIGIO what arrives.

Elsewhere than on Linux none are seen.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from stilltrue.runtime.introspection.linux.child_processes import started_ticks
from stilltrue.runtime.introspection.linux.child_threads import OF_GRPC

_SELF = Path("/proc/self")
_TIMER = "anon_inode:[timerfd]"
_FLAGS = re.compile(r"^flags:\s*([0-7]+)$", re.M)
_LIMITS = re.compile(r"^Max cpu time\s+(\w+)\s+(\w+)", re.M)
"""The limit at which the process gets SIGXCPU, and the one at which it is killed."""
_LEFT = re.compile(r"^it_value: \((\d+), (\d+)\)$", re.M)


def armed_timers() -> dict[int, float]:
    """The timer descriptors (``timerfd_create``) of this process that are armed, each with the seconds until it expires."""
    found: dict[int, float] = {}
    for name in _names(_SELF / "fd"):
        try:
            shown = (_SELF / "fdinfo" / name).read_text() if str((_SELF / "fd" / name).readlink()) == _TIMER else ""
        except OSError:  # closed meanwhile
            continue
        left = _LEFT.search(shown)
        if left is not None and any(map(int, left.groups())):
            found[int(name)] = int(left[1]) + int(left[2]) / 1e9
    return found


def processor_seconds_max() -> float | None:
    """The processor time after which the system ends this process (``RLIMIT_CPU``); None: there is no limit."""
    try:
        limits = _LIMITS.search((_SELF / "limits").read_text())
    except OSError:  # this is not Linux
        return None
    ends = signal.getsignal(signal.SIGXCPU) is signal.SIG_DFL
    limit = None if limits is None else limits[1 if ends else 2]
    return None if limit is None or not limit.isdecimal() else float(limit)


def sends_sigio() -> bool:
    """Whether a descriptor of this process sends a signal when something arrives (``O_ASYNC``)."""
    for name in _names(_SELF / "fdinfo"):
        with contextlib.suppress(OSError):  # closed meanwhile
            flags = _FLAGS.search((_SELF / "fdinfo" / name).read_text())
            if flags is not None and int(flags[1], 8) & os.O_ASYNC:
                return True
    return False


def thread_age(thread: int) -> float | None:
    """The seconds since a thread of this process (native id) was started; None if unknown."""
    started = started_ticks(f"self/task/{thread}")
    return None if started is None else time.clock_gettime(time.CLOCK_BOOTTIME) - started / os.sysconf("SC_CLK_TCK")


def threads_of_libraries(known: frozenset[int]) -> Iterator[tuple[int, str]]:
    """The threads of this process that are not among ``known`` (the system's ids) nor gRPC's: their ids and names."""
    for name in _names(_SELF / "task"):
        if int(name) in known:
            continue
        try:
            called = (_SELF / "task" / name / "comm").read_text().strip()
        except OSError:  # it has ended
            continue
        if called not in OF_GRPC:
            yield int(name), called


def _names(folder: Path) -> list[str]:
    try:
        return [one.name for one in folder.iterdir()]
    except OSError:
        return []
