"""Reads from Linux which processes have a semaphore of ``multiprocessing``, and which threads are blocked at it.

Rules:

1. A semaphore is a file in memory, which each process that has it maps. All of these are found under ``/proc``. Nothing is
   known if ``/proc`` does not list the processes of other users, or if a process of the same session cannot be read, unless it
   started this one through another program, such as a shell: a process gets a semaphore only from the one that starts it, so
   such an ancestor has none of ours.
2. A thread is blocked at it if the system shows it in the system call by which semaphores wait, at an address of that mapping.
   It has been blocked ever since if it has not been switched out again. To read this of another process takes the permission
   to trace it (``man 2 ptrace``): without that, nothing is known about its semaphores.
3. A release wakes the thread that has been blocked for longest. So as long as all threads that were blocked at some time are
   blocked still, and there is one, nobody has released the semaphore, and nobody has got it. This is not so for threads with
   real-time priority, which are woken first: with one of these nothing is known.
"""

from __future__ import annotations

import os
import re
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from stilltrue.runtime.introspection.linux.child_processes import (
    all_processes,
    parent_of,
    process_at,
    session_of,
    shows_all_processes,
)

Semaphore = tuple[int, int, int]
"""The numbers of its file: those of the device, and the inode."""
SLEEPERS_MAX = 64
"""Number of blocked threads beyond which nothing is known."""
_PROC = Path("/proc")
_FUTEX = {"x86_64": 202, "aarch64": 98}
_MAPPED = re.compile(r"^([0-9a-f]+)-([0-9a-f]+) rw-s \S+ ([0-9a-f]+):([0-9a-f]+) (\d+) +\S*/sem\.", re.M)
_SWITCHES = re.compile(r"^(?:non)?voluntary_ctxt_switches:\s*(\d+)$", re.M)
_POLICY = 38
"""Position of the scheduling policy in ``/proc/PID/stat`` after the name, which ends with the last parenthesis."""
_ORDINARY = frozenset({"0", "3", "5"})
"""The policies other, batch and idle."""


@dataclass(frozen=True, slots=True)
class Sleeper:
    """A ``thread`` blocked at the semaphore at this ``address``; ``switches``: how often it has been switched out so far."""

    process: int
    thread: int
    address: int
    switches: tuple[str, ...]

    def sleeps(self) -> bool:
        """Whether it has been blocked ever since (rule 2)."""
        return _sleeper(self.process, self.thread) == self


Users = Mapping[tuple[int, int], tuple[int, int]]
"""The processes that have a semaphore, by id and start time, each with the first and the last address of where it has it."""


def mapped_in(process: str) -> dict[Semaphore, tuple[int, int]]:
    """The semaphores that a process (id or ``self``) has, each with the first and the last address; may raise ``OSError``."""
    text = (_PROC / process / "maps").read_text(errors="replace")
    found = (one.groups() for one in _MAPPED.finditer(text))
    return {
        (int(major, 16), int(minor, 16), int(inode)): (int(start, 16), int(end, 16))
        for start, end, major, minor, inode in found
    }


def users_of(wanted: Container[Semaphore]) -> dict[Semaphore, Users]:
    """Who has these semaphores; one about which nothing is known is left out."""
    if not shows_all_processes():
        return {}
    own = session_of(os.getpid())
    apart = _set_apart()
    found: dict[Semaphore, dict[tuple[int, int], tuple[int, int]]] = {}
    unknown: set[Semaphore] = set()
    for pid in all_processes():
        try:
            mapped = mapped_in(str(pid))
        except PermissionError:
            if session_of(pid) == own and pid not in apart:
                return {}
            continue
        except OSError:  # it has ended
            continue
        mapped = {key: where for key, where in mapped.items() if key in wanted}
        process = process_at(pid) if mapped else None
        if process is None:
            continue
        for key, where in mapped.items():
            found.setdefault(key, {})[process.key] = where
        if not (_shows_calls(pid) and all(_is_ordinary(pid, thread) for thread in _threads_of(pid))):
            unknown |= mapped.keys()
    return {key: users for key, users in found.items() if key not in unknown}


def _set_apart() -> frozenset[int]:
    """The ancestors that started this process through another program, one that does not run Python (rule 1)."""
    above, through = [], False
    pid = parent_of(os.getpid())
    while pid:
        if through:
            above.append(pid)
        through = through or _is_another_program(pid)
        pid = parent_of(pid)
    return frozenset(above)


def _is_another_program(pid: int) -> bool:
    try:
        mapped = _text_of(f"{_PROC}/{pid}/maps")
    except OSError:
        return False
    return bool(mapped) and "python" not in mapped.lower()


def sleepers_at(users: Mapping[Semaphore, Users]) -> dict[Semaphore, frozenset[Sleeper]]:
    """The threads blocked at each semaphore; one with too many, or whose threads changed meanwhile, is left out."""
    first, second = _read_sleepers(users), _read_sleepers(users)
    return {key: found for key, found in first.items() if found == second[key] and len(found) <= SLEEPERS_MAX}


def _read_sleepers(users: Mapping[Semaphore, Users]) -> dict[Semaphore, frozenset[Sleeper]]:
    ranges: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for processes in users.values():
        for process, where in processes.items():
            ranges.setdefault(process, []).append(where)
    of = {process: list(_sleepers(process[0], where)) for process, where in ranges.items()}
    found: dict[Semaphore, frozenset[Sleeper]] = {}
    for key, processes in users.items():
        every = ((one, where) for process, where in processes.items() for one in of[process])
        found[key] = frozenset(one for one, (start, end) in every if start <= one.address < end)
    return found


def _sleepers(process: int, ranges: Sequence[tuple[int, int]]) -> Iterator[Sleeper]:
    """The threads of a process that are blocked at these addresses."""
    for thread in _threads_of(process):
        address = address_awaited(process, thread)
        if address is not None and any(start <= address < end for start, end in ranges):
            sleeper = _sleeper(process, thread)
            if sleeper is not None:
                yield sleeper


def _threads_of(process: int) -> list[int]:
    try:
        return [int(one) for one in os.listdir(_PROC / str(process) / "task")]  # noqa: PTH208 - names are enough
    except OSError:  # it has ended
        return []


def _sleeper(process: int, thread: int) -> Sleeper | None:
    address = address_awaited(process, thread)
    try:
        switches = () if address is None else tuple(_SWITCHES.findall(_text_of(f"{_PROC}/{process}/task/{thread}/status")))
    except OSError:  # it has ended
        return None
    return Sleeper(process, thread, address, switches) if address is not None and len(switches) == 2 else None


def address_awaited(process: int, thread: int) -> int | None:
    """The address at which a thread is blocked in this system call."""
    try:
        number, *arguments = _text_of(f"{_PROC}/{process}/task/{thread}/syscall").split()
        return int(arguments[0], 16) if int(number) == _FUTEX.get(os.uname().machine) else None
    except (OSError, ValueError):  # it has ended, it runs, or the system does not show it
        return None


def _shows_calls(process: int) -> bool:
    """Whether this process may read in which system calls another one's threads are (rule 2)."""
    try:
        _text_of(f"{_PROC}/{process}/syscall")
    except PermissionError:
        return False
    except OSError:  # it has ended
        return True
    return True


def _is_ordinary(process: int, thread: int) -> bool:
    """Whether a thread has no real-time priority, or has ended."""
    try:
        fields = _text_of(f"{_PROC}/{process}/task/{thread}/stat").rpartition(")")[2].split()
    except OSError:
        return True
    return len(fields) > _POLICY and fields[_POLICY] in _ORDINARY


def _text_of(path: str) -> str:
    with open(path, errors="replace") as file:  # noqa: PTH123 - thousands of these are read
        return file.read()
