"""Where the threads of child processes, and of this one, are, as Linux shows it: whether a child rests or is at work.

Rules:

1. A thread rests while it is blocked in a system call that only another party can end: without a timeout it reads from a
   pipe, a local socket, a terminal or the like, or waits for a semaphore, a child process or a signal. A read of a file is no
   rest, nor is a wait for a peer over the network, except for a client. A wait for any of several descriptors is no rest if
   the process has a connection over the network that it has made itself.
2. It also rests where it stood before: in the same call, for the same descriptor, called from the same place, and still
   without a timeout if it had none. So does a loop that sleeps between two rounds. An event loop that waits without a timeout
   is always in the same place: with a connection over the network it rests only if it has not run since.
3. Threads of gRPC's core, which come and go, do not count. The main thread does, whatever its name is, and so do threads that
   have no name of their own but the process's.
4. Where the system does not show another process's calls, only its processor time tells whether it has gone on.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from stilltrue.runtime.introspection.linux.child_processes import ChildProcess, processor_ticks

THREADS_MAX = 300
"""Of all children together. Those of further children count as not shown (rule 4)."""
_PROC = Path("/proc")
OF_GRPC = frozenset(
    {"event_engine", "lifeguard", "timer_manager", "grpc_global_tim", "grpc_shutdown", "default-executo", "resolver-execut"}
)
"""The names of threads of gRPC's core, of which the system keeps 15 characters."""
_DEVICES = "/dev/"
_SOCKET = re.compile(r"socket:\[(\d+)\]")
_TURNS = re.compile(r"^(?:non)?voluntary_ctxt_switches:\s*(\d+)$", re.M)
_LISTENS = "0A"
_ENDLESS = 0xFFFFFFFF
"""A timeout of -1, as a C int."""
_READS = {"x86_64": {0, 19, 43, 45, 47, 288}, "aarch64": {63, 65, 202, 207, 212, 242}}
"""read, readv, accept, recvfrom, recvmsg, accept4; the first argument is the descriptor."""
_WAITS = {"x86_64": {34, 61, 130, 247}, "aarch64": {95, 133, 260}}
"""pause, wait4, rt_sigsuspend, waitid: they have no timeout."""
_WAITS_IN_TIME = {"x86_64": {202: 3, 128: 2}, "aarch64": {98: 3, 137: 2}}
"""futex, rt_sigtimedwait, and which argument is the timeout; without one it is null."""
_FUTEX = {"x86_64": 202, "aarch64": 98}
_OPERATION, _OF_ONE_PROCESS, _WITH_CLOCK, _WAITING = 1, 128, 256, (0, 9)
"""Which argument of futex is the operation, its flags, and FUTEX_WAIT and FUTEX_WAIT_BITSET."""
_TIMERS = (14, 26, 27, 29)
"""``SIGALRM``, ``SIGVTALRM``, ``SIGPROF`` and ``SIGIO``."""
_CAUGHT = re.compile(r"^SigCgt:\s*([0-9a-f]+)$", re.M)
_POLLS = {
    "x86_64": {7: (2, _ENDLESS), 271: (2, 0), 23: (4, 0), 270: (4, 0), 232: (3, _ENDLESS), 281: (3, _ENDLESS)},
    "aarch64": {73: (2, 0), 72: (4, 0), 22: (3, _ENDLESS)},
}
"""poll, ppoll, select, pselect6, epoll_wait, epoll_pwait: which argument is the timeout, and its value without one."""


class Standing(NamedTuple):
    """Where a thread is: the system call, its stack pointer and its instruction.

    ``reads``: the descriptor that it reads from, if any; ``endless``: whether it has no timeout; ``is_poll``: whether it may
    wait for any of several descriptors; ``turns``: if so, how often it has been on a processor and left it.
    """

    call: int
    stack: int
    instruction: int
    reads: int | None
    endless: bool
    is_poll: bool
    turns: int = 0

    @property
    def place(self) -> tuple[int, int, int, int | None]:
        """The same while the thread is in the same call of the same code (rule 2)."""
        return self.call, self.stack, self.instruction, self.reads


class ChildThreads(NamedTuple):
    """The ``threads`` of the child ``pid`` by the system's ids (None: on a processor, or about to be); None if not shown.

    ``ticks``: the child's processor time so far.
    """

    pid: int
    threads: dict[int, Standing | None] | None
    ticks: int

    def is_at_work(self, before: ChildThreads | None) -> bool:
        """Whether one of the threads neither rests nor is where it stood ``before``."""
        if self.threads is None:
            return before is None or self.ticks != before.ticks
        stood = {} if before is None or before.threads is None else before.threads
        return not all(self._rests(now, stood.get(thread)) for thread, now in self.threads.items())

    def _rests(self, now: Standing | None, before: Standing | None) -> bool:
        if now is None:
            return False
        loops = now.is_poll and now.endless
        if before is not None and now.place == before.place and now.endless >= before.endless:
            return not loops or now.turns == before.turns or _is_local(self.pid)
        if loops:
            return _is_local(self.pid)
        return now.endless and (now.reads is None or _is_local(self.pid, now.reads))


def may_be_interrupted(pid: int) -> bool:
    """Whether a process has a timer that Linux shows, or a handler for those that it does not show.

    Raises ``OSError`` if it has ended.
    """
    caught = _CAUGHT.search((_PROC / str(pid) / "status").read_text())
    handled = caught is None or any(int(caught[1], 16) >> (one - 1) & 1 for one in _TIMERS)
    return handled or bool((_PROC / str(pid) / "timers").read_text())


def is_forked(pid: int) -> bool:
    """Whether a process is a copy of this one: ``exec`` would have moved what the system has put into its memory.

    In a copy, gRPC's threads run nothing of the application's; in a program that is not in Python, they may run all of it.
    Raises ``OSError`` if it has ended.
    """
    return (_PROC / str(pid) / "auxv").read_bytes() == (_PROC / "self" / "auxv").read_bytes()


class Futex(NamedTuple):
    """A futex at which a thread waits without a timeout; ``is_own``: whether only its process can use it."""

    address: int
    is_own: bool


def at_futex(words: Sequence[str]) -> Futex | None:
    """The futex at which a thread waits without a timeout, by its ``/proc/PID/syscall``."""
    machine = os.uname().machine
    if len(words) < 9 or words[0] != str(_FUTEX.get(machine)):
        return None
    operation, timeout = int(words[1 + _OPERATION], 16), int(words[1 + _WAITS_IN_TIME[machine][int(words[0])]], 16)
    if timeout or operation & ~(_OF_ONE_PROCESS | _WITH_CLOCK) not in _WAITING:
        return None
    return Futex(int(words[1], 16), bool(operation & _OF_ONE_PROCESS))


def is_of_grpc(thread: Path) -> bool:
    """Whether a thread, by its folder in ``/proc``, has the name of one of gRPC's core."""
    return _name_of(thread) in OF_GRPC


def switches_of(thread: Path) -> list[str]:
    """How often a thread, by its folder in ``/proc``, has left a processor, by itself and otherwise."""
    return _TURNS.findall((thread / "status").read_text(errors="replace"))


def threads_of(children: list[ChildProcess]) -> dict[tuple[int, int], ChildThreads]:
    """Where the threads of these processes are, by :attr:`ChildProcess.key`."""
    found: dict[tuple[int, int], ChildThreads] = {}
    left = THREADS_MAX
    for child in children:
        names = threads_in(child.pid)
        left -= len(names)
        shown = _standings(child.pid, names) if left >= 0 else None
        found[child.key] = ChildThreads(child.pid, shown, processor_ticks(child.pid))
    return found


def polls_without_end(thread: int) -> bool | None:
    """Whether a thread of this process (native id) waits for descriptors without a timeout.

    None if it does not wait for any, or the system does not show it.
    """
    try:
        standing = _standing(_PROC / "self" / "task" / str(thread))
    except OSError:  # it has ended, or is not shown
        return None
    return standing.endless if standing is not None and standing.is_poll else None


def threads_in(pid: int) -> list[str]:
    """The ids of a process's threads; empty if it has ended."""
    try:
        return [one.name for one in (_PROC / str(pid) / "task").iterdir()]
    except OSError:  # it has ended
        return []


def _standings(pid: int, threads: list[str]) -> dict[int, Standing | None] | None:
    """Where these threads are; None if the system does not show it."""
    found: dict[int, Standing | None] = {}
    left_out = OF_GRPC - {_name_of(_PROC / str(pid))}
    for thread in threads:
        folder = _PROC / str(pid) / "task" / thread
        try:
            if int(thread) == pid or _name_of(folder) not in left_out:
                found[int(thread)] = _standing(folder)
        except OSError:  # it has ended, or is not shown
            if folder.exists():
                return None
    return found


def _name_of(folder: Path) -> str:
    return (folder / "comm").read_text(errors="replace").rstrip("\n")


def _standing(folder: Path) -> Standing | None:
    """Read ``syscall``: the number of the call, six arguments, the stack pointer, the instruction; or ``running``."""
    words = (folder / "syscall").read_text().split()
    if len(words) < 9:
        return None
    machine = os.uname().machine
    call, arguments = int(words[0]), [int(one, 16) for one in words[1:7]]
    in_time, poll = _WAITS_IN_TIME.get(machine, {}).get(call), _POLLS.get(machine, {}).get(call)
    reads = arguments[0] if call in _READS.get(machine, ()) else None
    endless = reads is not None or call in _WAITS.get(machine, ())
    if in_time is not None:
        endless = not arguments[in_time]
    elif poll is not None:
        endless = arguments[poll[0]] & _ENDLESS == poll[1]
    turns = 0 if poll is None else sum(map(int, switches_of(folder)))
    return Standing(call, int(words[7], 16), int(words[8], 16), reads, endless, poll is not None, turns)


def _is_local(pid: int, descriptor: int | None = None) -> bool:
    """Whether a descriptor of a process is no connection over the network that it has made, nor a file (rule 1).

    None: whether none of its descriptors is such a connection.
    """
    folder = _PROC / str(pid)
    try:
        links = list((folder / "fd").iterdir()) if descriptor is None else [folder / "fd" / str(descriptor)]
        targets = [str(link.readlink()) for link in links]
        if descriptor is not None and targets[0].startswith("/") and not targets[0].startswith(_DEVICES):
            return False
        sockets = {one[1] for one in map(_SOCKET.match, targets) if one is not None}
        return not sockets or not sockets - _local_sockets(folder / "net")
    except OSError:  # it has ended, or is not shown
        return False


def _local_sockets(folder: Path) -> set[str]:
    """The numbers of the sockets that are local, on which a server listens, or through which its clients have come."""
    rows = [line for name in ("tcp", "tcp6") for line in _rows(folder / name) if len(line) > 9]
    ports = {_port_of(line) for line in rows if line[3] == _LISTENS}
    found = {line[9] for line in rows if _port_of(line) in ports}
    return found.union(number for line in _rows(folder / "unix") for number in line[6:7])


def _port_of(row: list[str]) -> str:
    """The port at this end of a connection."""
    return row[1].rpartition(":")[2]


def _rows(table: Path) -> list[list[str]]:
    try:
        return [line.split() for line in table.read_text(errors="replace").splitlines()[1:]]
    except FileNotFoundError:  # without IPv6
        return []
