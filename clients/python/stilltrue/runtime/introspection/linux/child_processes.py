"""The child processes of this process, and their children, as Linux shows them; elsewhere none are seen.

Rules:

1. A child is identified by its process id and its start time, since process ids are reused. A zombie is no longer a child.
2. A child that has joined a detector has an open descriptor with the name :data:`MARK`
   (:mod:`~stilltrue.runtime.membership.member_mark`).
3. A child that has lost its parent (a shell's ``worker &``) stays in this process's group. So do the programs that a shell has
   started together with this one, which have the shell as parent, or process 1 as this process has: so :func:`orphans` are
   the processes of the group that began later and whose parent is in another session, or is process 1. A daemon in a session
   of its own is not found, unless this is process 1.
4. Helpers that ``multiprocessing`` starts for itself are left out: the resource tracker and the fork server. The processes that
   the fork server starts are its children.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import time
from collections import deque
from collections.abc import Container
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

MARK = "stilltrue-member"
"""The start of the descriptor's name, which ends in the time of joining."""
CHILDREN_MAX = 2_000
DESCRIPTORS_MAX = 1_024
"""The descriptor of a member is among its first ones."""
_HELPERS = (
    ("multiprocessing.resource_tracker", "_resource_tracker", "_pid"),
    ("multiprocessing.forkserver", "_forkserver", "_forkserver_pid"),
)
_PROC = Path("/proc")
_LISTS_CHILDREN = (_PROC / "thread-self" / "children").exists()
_MARK = re.compile(rf"{MARK}:([0-9.]+):")
_HIDING = re.compile(r"^\S+ /proc proc \S*\bhidepid=(?:2|4|invisible|ptraceable)\b", re.M)
_ENDED = ("Z", "X")
_PARENT, _GROUP, _SESSION, _TERMINAL, _TICKS, _STARTED = 1, 2, 3, 4, slice(11, 13), 19
"""Positions of fields in ``/proc/PID/stat`` after the name, which ends with the last parenthesis."""


class ChildProcess(NamedTuple):
    """A running child process; ``started``: clock ticks since the machine booted."""

    pid: int
    started: int
    name: str

    @property
    def key(self) -> tuple[int, int]:
        """Rule 1."""
        return self.pid, self.started


def child_processes() -> list[ChildProcess]:
    """The running children of this process and their children, except the helpers of rule 4."""
    helpers = _helpers()
    found: dict[int, ChildProcess] = {}
    todo = deque(children_of(os.getpid()))
    while todo and len(found) < CHILDREN_MAX:
        pid = todo.popleft()
        child = None if pid in found else process_at(pid)
        if child is not None:
            found[pid] = child
            todo.extend(children_of(pid))
    return [child for child in found.values() if child.pid not in helpers]


def orphans(since: int, known: Container[int], group_of: int | None = None) -> list[ChildProcess]:
    """The orphans (rule 3) that began at :func:`boot_ticks` ``since`` or later, except the ``known`` process ids.

    ``group_of``: a process in whose group they are; this one by default.
    """
    own = _stat_of("self" if group_of is None else str(group_of))[1]
    numbered_alike = _target_of(_PROC / "self") == str(os.getpid())
    found = []
    for pid in all_processes() if len(own) > _STARTED else ():
        if pid in known or pid == os.getpid() or (numbered_alike and not _may_be_in_group(pid, group_of or 0)):
            continue
        before, fields = _stat_of(str(pid))
        if len(fields) <= _STARTED or fields[0] in _ENDED:
            continue
        if fields[_GROUP] == own[_GROUP] and int(fields[_STARTED]) >= since and _is_of_others(fields[_PARENT], own[_SESSION]):
            found.append(ChildProcess(pid, int(fields[_STARTED]), before.partition("(")[2]))
    return found


def _may_be_in_group(pid: int, of: int) -> bool:
    """Asked first: it takes a hundredth of the time of reading ``/proc/PID/stat``, on machines of thousands of processes.

    Only if ``/proc`` numbers processes as this process's own namespace does.
    """
    try:
        return os.getpgid(pid) == (os.getpgid(of) if of else os.getpgrp())
    except ProcessLookupError:
        return False
    except OSError:  # a security module forbids the question
        return True


def _is_of_others(parent: str, session: str) -> bool:
    """Whether this parent is process 1, is not shown, or is in another session."""
    fields = _stat_of(parent)[1]
    return parent == "1" or len(fields) <= _STARTED or fields[_SESSION] != session


def boot_ticks() -> int:
    """The clock ticks since the machine booted, in which start times are given."""
    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK")) if sys.platform == "linux" else 0


def clock() -> float:
    """The seconds in which marks are dated, the same in all processes of a machine."""
    return time.monotonic()


def joined_at(child: ChildProcess) -> float | None:
    """When a child joined a detector, by :func:`clock`; None if it is not a member, or this cannot be read (rule 2)."""
    try:
        for descriptor in islice((_PROC / str(child.pid) / "fd").iterdir(), DESCRIPTORS_MAX):
            found = _MARK.search(_target_of(descriptor))
            if found is not None:
                return float(found[1])
    except OSError:  # it has ended, or belongs to another user
        pass
    return None


def _target_of(descriptor: Path) -> str:
    try:
        return str(descriptor.readlink())
    except OSError:  # closed meanwhile
        return ""


def process_at(pid: int) -> ChildProcess | None:
    """The running process with this id; None if there is none."""
    before, fields = _stat_of(str(pid))
    if len(fields) <= _STARTED or fields[0] in _ENDED:
        return None
    return ChildProcess(pid, int(fields[_STARTED]), before.partition("(")[2])


def processor_ticks(pid: int) -> int:
    """The processor time of a process so far, in clock ticks; 0 if it has ended."""
    return sum(map(int, _stat_of(str(pid))[1][_TICKS]))


def started_ticks(pid: str) -> int | None:
    """When a process, or a thread (``PID/task/TID``), was started, in clock ticks since the machine booted; None if unknown."""
    fields = _stat_of(pid)[1]
    return int(fields[_STARTED]) if len(fields) > _STARTED else None


def _stat_of(pid: str) -> tuple[str, list[str]]:
    """The beginning of ``/proc/PID/stat`` up to the process's name, and the fields after it; empty if it has ended."""
    try:
        before, _, after = (_PROC / pid / "stat").read_text(errors="replace").rpartition(")")
    except OSError:
        return "", []
    return before, after.split()


def children_of(pid: int) -> list[int]:
    """The process ids of a process's children, which Linux lists by the thread that started them."""
    try:
        threads = list((_PROC / str(pid) / "task").iterdir())
    except OSError:  # it has ended, or this is not Linux
        return []
    if not _LISTS_CHILDREN:
        return _children_by_parent(pid)
    found: list[int] = []
    for thread in threads:
        with contextlib.suppress(OSError):  # the thread has ended
            found += map(int, (thread / "children").read_text().split())
    return found


def starter_of(child: int) -> int | None:
    """The thread (native id) of this process that has started a child; None if unknown."""
    for thread in (_PROC / "self/task").iterdir() if _LISTS_CHILDREN else ():
        with contextlib.suppress(OSError):  # the thread has ended
            if str(child) in (thread / "children").read_text().split():
                return int(thread.name)
    return None


def _children_by_parent(parent: int) -> list[int]:
    """The same on a kernel that does not list children: by the parent of every process."""
    every = [(pid, _stat_of(str(pid))[1]) for pid in all_processes()]
    return [pid for pid, fields in every if len(fields) > _PARENT and fields[_PARENT] == str(parent)]


def parent_of(pid: int) -> int:
    """The process id of a process's parent; 0 if unknown."""
    fields = _stat_of(str(pid))[1]
    return int(fields[_PARENT]) if len(fields) > _PARENT else 0


def session_of(pid: int) -> int:
    """The session of a process, also of one whose ``/proc`` may not be read; 0 if unknown."""
    try:
        return os.getsid(pid)
    except OSError:  # it has ended
        return 0


def terminal_of(pid: int) -> str:
    """The number of a process's controlling terminal; "0" if it has none, or has ended."""
    fields = _stat_of(str(pid))[1]
    return fields[_TERMINAL] if len(fields) > _TERMINAL else "0"


def all_processes() -> list[int]:
    """The ids of all processes that are shown."""
    try:
        return [int(entry.name) for entry in _PROC.iterdir() if entry.name.isdecimal()]
    except OSError:  # this is not Linux
        return []


def shows_all_processes() -> bool:
    """Whether ``/proc`` lists the processes of other users (``man 5 proc``, ``hidepid``)."""
    try:
        return _HIDING.search((_PROC / "self/mounts").read_text(errors="replace")) is None
    except OSError:  # this is not Linux
        return False


def _helpers() -> set[Any]:
    """The process ids of rule 4."""
    owners = ((getattr(sys.modules.get(module), owner, None), name) for module, owner, name in _HELPERS)
    return {getattr(owner, name, None) for owner, name in owners}
