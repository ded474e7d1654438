"""Trees of processes that stand still until somebody uses the other end of one of their pipes, as Linux shows it.

Rules:

1. A tree is a process, its children, theirs, and so on. It stands still if at one moment each of its threads was in a system
   call that only its own process, its children, or the other end of a pipe can end: at a futex that no other process can use,
   without a timeout; in ``wait4()`` for a child; in ``read()`` or ``write()`` of a pipe or a local socket. A process by itself
   that has one thread is read once, others twice: between the two, no thread has been on a processor.
2. gRPC's threads in a copy of this process do not count: they run nothing of the application's.
3. No process of the tree may be about to be interrupted: it has no timer that Linux shows, and no handler for those that it
   does not show. An alarm without a handler in a process that has no agent is not seen: an assumption.
4. Only a process that has the other end of such a pipe open ends such a call, by reading, by writing, or by closing it. If
   all of them belong to the tree, it stands still for ever. To find them, the descriptors of all processes are read.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from stilltrue.runtime.introspection.linux.child_processes import children_of, process_at
from stilltrue.runtime.introspection.linux.child_threads import (
    at_own_futex,
    is_forked,
    is_of_grpc,
    may_be_interrupted,
    polls_without_end,
    switches_of,
    threads_in,
)
from stilltrue.runtime.waits.pipes.kernel import other_end_of, processes_at

PROCESSES_MAX, THREADS_MAX = 32, 64
WAIT4 = {"x86_64": 61, "aarch64": 260}
OTHER_CALL = {"read": "write", "write": "read"}
_CALLS = {
    ("x86_64", "read"): (0, 19),
    ("x86_64", "write"): (1, 20),
    ("aarch64", "read"): (63, 65),
    ("aarch64", "write"): (64, 66),
}
"""Also ``readv()`` and ``writev()``."""
_OPTIONS = 3
"""Which word of ``/proc/PID/syscall`` has the options of ``wait4()``."""
_PROC = Path("/proc")
_ENDS = re.compile(r"(?:pipe|socket):\[\d+\]")

Place = tuple[str, str]
"""An end of a pipe, as the system writes it, and what a thread does there: ``read`` or ``write``."""
_Waits = dict[int, dict[str, tuple[Place | None, list[str]]]]
"""By process and thread, the pipe at which it waits, if any, and what changes once it runs."""


@dataclass(frozen=True, slots=True)
class Tree:
    """The ``processes`` of a tree that stands still, the first one first, and the pipes ``at`` which they wait."""

    processes: tuple[int, ...]
    at: frozenset[Place]

    def is_closed(self, but: Place | None = None) -> bool:
        """Whether nobody else has the other end of the pipes at which it waits, ``but`` for one of these (rule 4)."""
        return all(one == but or self._is_own(one) for one in self.at)

    def has_all(self, processes: frozenset[int] | None) -> bool:
        """Whether these are processes of the tree; False for none, or if they are unknown."""
        return bool(processes) and frozenset(self.processes).issuperset(processes or ())

    def _is_own(self, place: Place) -> bool:
        end, call = place
        other = other_end_of(end)
        return other is not None and self.has_all(processes_at(other, OTHER_CALL[call]))


def tree_of(pid: int) -> Tree | None:
    """The tree of a child; None if it does not stand still (rules 1 to 3), or the system does not show it."""
    try:
        found = _read(pid)
        if found is None or any(map(may_be_interrupted, found)):
            return None
        if len(found) > 1 or len(found[pid]) > 1:
            found = found if _read(pid) == found else None
    except (OSError, ValueError):  # a process has ended, or is not shown
        return None
    waits = () if found is None else (one for those in found.values() for one in those.values())
    return None if found is None else Tree(tuple(found), frozenset(place for place, _ in waits if place is not None))


def is_call(number: int, call: str) -> bool:
    """Whether a system call of this number is one to ``call``: to read, or to write."""
    return number in _CALLS.get((os.uname().machine, call), ())


def stands_still(thread: int) -> bool:
    """Whether a thread of this process (native id) is in a call like those of rule 1, or waits for descriptors without end."""
    try:
        words = (_PROC / "self/task" / str(thread) / "syscall").read_text().split()
        in_call = _place_of(_PROC / "self", words) is not None or at_own_futex(words) or _is_for_child(words)
    except (OSError, ValueError):  # it has ended, or is not shown
        return False
    return in_call or polls_without_end(thread) is True


def _read(pid: int) -> _Waits | None:
    found: _Waits = {}
    todo = [pid]
    while todo:
        one = todo.pop()
        waits = _waits_in(one)
        if waits is None or len(found) >= PROCESSES_MAX:
            return None
        found[one] = waits
        todo += (child for child in children_of(one) if process_at(child) is not None)
    return found


def _waits_in(pid: int) -> dict[str, tuple[Place | None, list[str]]] | None:
    """The waits of a process's threads; None if one of them may go on."""
    folder = _PROC / str(pid)
    threads = threads_in(pid)
    found: dict[str, tuple[Place | None, list[str]]] = {}
    forked = is_forked(pid)
    for thread in threads if len(threads) <= THREADS_MAX else ():
        own = folder / "task" / thread
        if forked and int(thread) != pid and is_of_grpc(own):
            continue
        turns, words = switches_of(own), (own / "syscall").read_text().split()
        place = _place_of(folder, words)
        if place is None and not at_own_futex(words) and not _is_for_child(words):
            return None
        found[thread] = place, [*words, *turns]
    return found or None


def _place_of(folder: Path, words: list[str]) -> Place | None:
    call = next((one for one in OTHER_CALL if words[0].isdecimal() and is_call(int(words[0]), one)), None)
    if call is None:
        return None
    end = str((folder / "fd" / str(int(words[1], 16))).readlink())
    return (end, call) if _ENDS.fullmatch(end) else None


def _is_for_child(words: list[str]) -> bool:
    return words[0] == str(WAIT4.get(os.uname().machine)) and not int(words[_OPTIONS], 16)
