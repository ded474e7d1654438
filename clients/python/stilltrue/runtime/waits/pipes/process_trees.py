"""Trees of processes that stand still until somebody uses the other end of one of their pipes, as Linux shows it.

Rules:

1. A tree is a process, its children, theirs, and so on. It stands still if at one moment each of its threads was in a system
   call that only its own process, its children, the other end of a pipe or a release of a semaphore can end: at a futex that no
   other process can use, or at a semaphore of ``multiprocessing``, without a timeout; in ``wait4()`` for a child; in ``read()``
   or ``write()`` of a pipe or a local socket. A process by itself that has one thread is read once, others twice: between the
   two, no thread has been on a processor.
2. gRPC's threads in a copy of this process do not count: they run nothing of the application's.
3. No process of the tree may be about to be interrupted: it has no timer that Linux shows, and no handler for those that it
   does not show. An alarm without a handler in a process that has no agent is not seen: an assumption.
4. Only a process that has the other end of such a pipe open ends such a call, by reading, by writing, or by closing it; only
   one that has a semaphore releases it. If all of them belong to the tree, it stands still for ever. To find them, the
   descriptors of all processes are read, or what they map.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Container, Iterable
from dataclasses import dataclass
from pathlib import Path

from stilltrue.runtime.introspection.linux.child_processes import children_of, process_at
from stilltrue.runtime.introspection.linux.child_threads import (
    at_futex,
    is_forked,
    is_of_grpc,
    may_be_interrupted,
    polls_without_end,
    switches_of,
    threads_in,
)
from stilltrue.runtime.waits.pipes.kernel import other_end_of, processes_at
from stilltrue.runtime.waits.semaphores.kernel import Semaphore, mapped_in, users_of

PROCESSES_MAX, THREADS_MAX = 32, 64
KNOWN_SECONDS, READ_MAX = 0.1, 32
WAIT4 = {"x86_64": 61, "aarch64": 260}
ACQUIRES = "acquire"
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
"""An end of a pipe, as the system writes it, and what a thread does there: ``read`` or ``write``; or a semaphore to acquire."""
_Waits = dict[int, dict[str, tuple[Place | None, list[str]]]]
"""By process and thread, the place at which it waits, if any, and what changes once it runs."""


@dataclass(frozen=True, slots=True)
class Tree:
    """The ``processes`` of one or more trees that stand still, and the places ``at`` which they wait."""

    processes: tuple[int, ...]
    at: frozenset[Place]

    def is_closed(self, but: Container[Place] = ()) -> bool:
        """Whether nobody else can use the places at which it waits, ``but`` for some (rule 4)."""
        return all(one in but or self.has_all(users_at(one)) for one in self.at)

    def has_all(self, processes: frozenset[int] | None) -> bool:
        """Whether these are processes of the tree; False for none, or if they are unknown."""
        return bool(processes) and frozenset(self.processes).issuperset(processes or ())


def users_at(place: Place) -> frozenset[int] | None:
    """The processes that can end a wait at this place (rule 4); None if unknown."""
    end, call = place
    if call == ACQUIRES:
        key = _semaphore_of(end)
        users = users_of({key}).get(key)
        return None if users is None else frozenset(pid for pid, _ in users)
    other = other_end_of(end)
    return None if other is None else processes_at(other, OTHER_CALL[call])


class _Known:
    """What cuts have read: each asks for the same trees several times."""

    trees: dict[int, Tree | None] = {}  # noqa: RUF012 - replaced as a whole
    at = float("-inf")


def tree_lately(pid: int) -> Tree | None:
    """As :func:`tree_of`, read up to :data:`KNOWN_SECONDS` ago; None for more than :data:`READ_MAX` trees in that time."""
    now = time.monotonic()
    if now - _Known.at >= KNOWN_SECONDS:
        _Known.at, _Known.trees = now, {}
    known = _Known.trees
    if pid not in known and len(known) < READ_MAX:
        known[pid] = tree_of(pid)
    return known.get(pid)


def forest_of(pids: Iterable[int]) -> Tree | None:
    """The trees of these children as one; None if one of them does not stand still."""
    found = [tree_of(one) for one in pids]
    trees = [one for one in found if one is not None]
    processes = dict.fromkeys(pid for one in trees for pid in one.processes)
    return Tree(tuple(processes), frozenset(place for one in trees for place in one.at)) if len(trees) == len(found) else None


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
        in_call = _waits_within(words) or _place_of(_PROC / "self", words) is not None
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
        if place is None and not _waits_within(words):
            return None
        found[thread] = place, [*words, *turns]
    return found or None


def _place_of(folder: Path, words: list[str]) -> Place | None:
    """Where a thread waits, of the process with this folder in ``/proc``; None if elsewhere."""
    futex = at_futex(words)
    if futex is not None and not futex.is_own:
        return _semaphore_at(folder.name, futex.address)
    call = next((one for one in OTHER_CALL if words[0].isdecimal() and is_call(int(words[0]), one)), None)
    if call is None:
        return None
    end = str((folder / "fd" / str(int(words[1], 16))).readlink())
    return (end, call) if _ENDS.fullmatch(end) else None


def _waits_within(words: list[str]) -> bool:
    """Whether a thread waits for what only its own process, or a child of it, can do."""
    futex = at_futex(words)
    return (futex is not None and futex.is_own) or _is_for_child(words)


def _semaphore_at(pid: str, address: int) -> Place | None:
    found = (key for key, (start, end) in mapped_in(pid).items() if start <= address < end)
    return next(((":".join(map(str, key)), ACQUIRES) for key in found), None)


def own_semaphore_at(address: int) -> Place | None:
    """The place of a semaphore that this process has at this address."""
    return _semaphore_at("self", address)


def _semaphore_of(end: str) -> Semaphore:
    major, minor, inode = map(int, end.split(":"))
    return major, minor, inode


def _is_for_child(words: list[str]) -> bool:
    return words[0] == str(WAIT4.get(os.uname().machine)) and not int(words[_OPTIONS], 16)
