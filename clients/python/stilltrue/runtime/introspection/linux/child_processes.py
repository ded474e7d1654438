"""The child processes of this process, and their children, as Linux shows them; elsewhere none are seen.

Rules:

1. A child is identified by its process id and its start time, since process ids are reused. A zombie is no longer a child.
2. A child that has joined a detector has an open descriptor with the name :data:`MARK`
   (:mod:`~stilltrue.runtime.membership.member_mark`).
3. A child that has lost its parent (a shell's ``worker &``) stays in this process's group. So do the programs that a shell has
   started together with this one, which have the shell as parent, or process 1 as this process has: so :func:`orphans` are
   the processes of the group that began later and whose parent is in another session, or is process 1.
4. A daemon (``setsid``, a double fork) is in another group, and in a session of its own. It is found if `stilltrue run` has
   started the program: its environment has the same :data:`STARTED`. It is an orphan if its parent's environment has not,
   or is that of process 1, in another session. One with parent 0 was put here from outside (``kubectl exec``, a probe).
5. Helpers that ``multiprocessing`` starts for itself are left out: the resource tracker and the fork server. The processes that
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
STAT_MAX = 4_096
"""More bytes than a process's ``stat`` has."""
STARTED = "STILLTRUE_RUN_PID"
"""The environment variable with the id of the process that `stilltrue run` became, set in it and its descendants."""
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
    """The running children of this process and their children, except the helpers of rule 5."""
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
    """The orphans (rules 3 and 4) that began at :func:`boot_ticks` ``since`` or later, except the ``known`` process ids.

    ``group_of``: only those in the group of this process, instead of this one's and daemons.
    """
    own = _stat_of("self" if group_of is None else str(group_of))[1]
    numbered_alike = _target_of(_PROC / "self") == str(os.getpid())
    started = os.environ.get(STARTED, "") if group_of is None else ""
    found = []
    for pid in all_processes() if len(own) > _STARTED else ():
        if pid in known or pid == os.getpid():
            continue
        if numbered_alike and not started and not _may_be_in_group(pid, group_of or 0):
            continue
        before, fields = _stat_of(str(pid))
        if len(fields) <= _STARTED or fields[0] in _ENDED or int(fields[_STARTED]) < since:
            continue
        if fields[_GROUP] != own[_GROUP]:
            is_orphan = bool(started) and _is_daemon_of(started, pid, fields)
        else:
            is_orphan = _is_of_others(fields[_PARENT], own[_SESSION])
        if is_orphan:
            found.append(ChildProcess(pid, int(fields[_STARTED]), before.partition("(")[2]))
    return found


def _is_daemon_of(started: str, pid: int, fields: list[str]) -> bool:
    """Rule 4. ``fields``: those of the process."""
    parent = fields[_PARENT]
    if parent == "0" or not _has_started(started, str(pid)):
        return False
    return not _has_started(started, parent) or (parent == "1" and _stat_of(parent)[1][_SESSION] != fields[_SESSION])


def _has_started(started: str, pid: str) -> bool:
    try:
        environment = (_PROC / pid / "environ").read_bytes()
    except OSError:  # it has ended, or belongs to another user
        return False
    return f"\0{STARTED}={started}\0".encode() in b"\0" + environment


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
    """The beginning of ``/proc/PID/stat`` up to the process's name, and the fields after it; empty if it has ended.

    Read without a file object, in a third of the time: :func:`orphans` reads that of every process of the machine.
    """
    try:
        descriptor = os.open(f"{_PROC}/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return "", []
    try:
        text = os.read(descriptor, STAT_MAX)
    except OSError:  # it has ended meanwhile
        return "", []
    finally:
        os.close(descriptor)
    before, _, after = text.decode(errors="replace").rpartition(")")
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
    """The process ids of rule 5."""
    owners = ((getattr(sys.modules.get(module), owner, None), name) for module, owner, name in _HELPERS)
    return {getattr(owner, name, None) for owner, name in owners}
