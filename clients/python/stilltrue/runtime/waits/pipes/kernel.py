"""Reads from Linux at which pipe a thread waits, and which processes have the other end of it open.

Rules:

1. A pipe is the same for all processes of a machine if its inode is. A thread waits at it if the system shows the thread in
   ``read()`` or ``write()`` of its descriptor while ``poll()`` says that there is nothing to read, or no room.
2. Only a process that has the other end open can end that, by reading, by writing, or by closing it as the last one. They are
   all found under ``/proc``. Nothing is known if a process of the same session cannot be read, or there is too much to read.
"""

from __future__ import annotations

import os
import re
import select
import sys
from pathlib import Path

from stilltrue.runtime.introspection.child_processes import all_processes, session_of
from stilltrue.runtime.waits.files.kernel import system_call_of

DESCRIPTORS_MAX = 50_000
"""Number of descriptors of all processes that are read."""
_PROC = Path("/proc")
_CALLS = {("x86_64", "read"): 0, ("x86_64", "write"): 1, ("aarch64", "read"): 63, ("aarch64", "write"): 64}
_FUTEX = {"x86_64": 202, "aarch64": 98}
_READY_FOR = {"read": select.POLLIN, "write": select.POLLOUT} if sys.platform == "linux" else {}
_PIPE = re.compile(r"pipe:\[(\d+)\]")
_FLAGS = re.compile(r"^flags:\s*([0-7]+)$", re.M)


def pipe_at(descriptor: int) -> int | None:
    """The inode of the pipe that a descriptor of this process is an end of; None if it is anything else."""
    try:
        found = _PIPE.fullmatch(str((_PROC / "self/fd" / str(descriptor)).readlink()))
    except OSError:
        return None
    return None if found is None else int(found[1])


def is_in_call(thread: int, call: str, descriptor: int) -> bool:
    """Whether a thread (native id) is in this system call, ``read`` or ``write``, on a descriptor."""
    found = system_call_of(thread)
    return found is not None and found[:2] == (_CALLS.get((os.uname().machine, call)), descriptor)


def waits_for_lock(thread: int) -> bool:
    """Whether a thread (native id) is in the system call by which semaphores wait."""
    found = system_call_of(thread)
    return found is not None and found[0] == _FUTEX.get(os.uname().machine)


def is_blocked(descriptor: int, call: str) -> bool:
    """Whether a ``read`` or ``write`` of a pipe would not go on now."""
    poll = select.poll()
    poll.register(descriptor, _READY_FOR[call])
    return not poll.poll(0)


def processes_at(pipe: int, call: str) -> frozenset[int] | None:
    """The processes (ids) that have an end of a pipe open on which ``call`` is possible (rule 2); None if unknown."""
    name, own, left = f"pipe:[{pipe}]", session_of(os.getpid()), DESCRIPTORS_MAX
    found = set()
    for pid in all_processes():
        try:
            descriptors = os.listdir(_PROC / str(pid) / "fd")  # noqa: PTH208 - names are enough
        except PermissionError:
            if session_of(pid) == own:
                return None
            continue
        except OSError:  # it has ended
            continue
        left -= len(descriptors)
        if left < 0:
            return None
        if any(_is_end(_PROC / str(pid), one, name, call) for one in descriptors):
            found.add(pid)
    return frozenset(found)


def _is_end(process: Path, descriptor: str, name: str, call: str) -> bool:
    try:
        if str((process / "fd" / descriptor).readlink()) != name:
            return False
        flags = _FLAGS.search((process / "fdinfo" / descriptor).read_text())
    except OSError:  # closed meanwhile
        return False
    mode = os.O_RDWR if flags is None else int(flags[1], 8) & os.O_ACCMODE
    return mode in ((os.O_RDONLY, os.O_RDWR) if call == "read" else (os.O_WRONLY, os.O_RDWR))
