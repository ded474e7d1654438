"""Reads from Linux at which pipe or local socket a thread waits, and which processes have the other end of it open.

Rules:

1. A pipe is the same for all processes of a machine if its inode is. A thread waits at it if the system shows the thread in
   ``read()`` or ``write()`` of its descriptor while ``poll()`` says that there is nothing to read, or no room. A connection of
   both ways is a socket; the system tells the inode of its other end (``man 7 sock_diag``).
2. Only a process that has the other end open can end that, by reading, by writing, or by closing it as the last one. They are
   all found under ``/proc``. Nothing is known if ``/proc`` does not list the processes of other users, if a process of the same
   session cannot be read, or if there is too much to read.
"""

from __future__ import annotations

import os
import re
import select
import socket
import sys
from pathlib import Path
from struct import Struct

from stilltrue.runtime.introspection.linux.child_processes import all_processes, session_of, shows_all_processes
from stilltrue.runtime.waits.files.kernel import system_call_of

DESCRIPTORS_MAX = 50_000
"""Number of descriptors of all processes that are read."""
_PROC = Path("/proc")
_CALLS = {("x86_64", "read"): 0, ("x86_64", "write"): 1, ("aarch64", "read"): 63, ("aarch64", "write"): 64}
_FUTEX = {"x86_64": 202, "aarch64": 98}
_READY_FOR = {"read": select.POLLIN, "write": select.POLLOUT} if sys.platform == "linux" else {}
_PIPE, _SOCKET = re.compile(r"pipe:\[\d+\]"), re.compile(r"socket:\[(\d+)\]")
_SOCK_DIAG, _BY_FAMILY, _REQUEST, _SHOW_PEER, _PEER, _ANY = 4, 20, 1, 4, 2, 0xFFFFFFFF
"""Numbers of ``linux/netlink.h``, ``linux/sock_diag.h`` and ``linux/unix_diag.h``."""
_HEADER, _QUERY, _ABOUT, _ATTRIBUTE = Struct("=IHHII"), Struct("=BBHIIIII"), Struct("=BBBBIII"), Struct("=HH")
_ANSWER_BYTES_MAX = 4096
_FLAGS = re.compile(r"^flags:\s*([0-7]+)$", re.M)


def own_end_at(descriptor: int) -> str | None:
    """What a descriptor of this process refers to, as the system writes it; None if it is closed."""
    try:
        return str((_PROC / "self/fd" / str(descriptor)).readlink())
    except OSError:
        return None


def other_end_at(descriptor: int) -> str | None:
    """The other end of a pipe or local socket that a descriptor of this process is an end of; None if it is anything else.

    It is written as the system writes it: a pipe has the same name at both ends.
    """
    own = own_end_at(descriptor)
    return None if own is None else other_end_of(own)


def other_end_of(end: str) -> str | None:
    """The same for an end as the system writes it."""
    if _PIPE.fullmatch(end):
        return end
    both_ways = _SOCKET.fullmatch(end)
    peer = None if both_ways is None else peer_of(int(both_ways[1]))
    return f"socket:[{peer}]" if peer else None


def peer_of(inode: int) -> int | None:
    """The inode of the other end of a local socket; None if it is closed, or unknown."""
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG) as kernel:
            query = _QUERY.pack(socket.AF_UNIX, 0, 0, _ANY, inode, _SHOW_PEER, _ANY, _ANY)
            kernel.send(_HEADER.pack(_HEADER.size + len(query), _BY_FAMILY, _REQUEST, 0, 0) + query)
            answer = kernel.recv(_ANSWER_BYTES_MAX, socket.MSG_DONTWAIT)
    except (OSError, AttributeError):  # this is not Linux, or it does not tell
        return None
    size, kind = _HEADER.unpack_from(answer)[:2]
    at = _HEADER.size + _ABOUT.size
    while kind == _BY_FAMILY and at + _ATTRIBUTE.size <= size:
        length, name = _ATTRIBUTE.unpack_from(answer, at)
        if name == _PEER:
            return int.from_bytes(answer[at + _ATTRIBUTE.size : at + length], sys.byteorder) or None
        at += max(_ATTRIBUTE.size, -(-length // 4) * 4)
    return None


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


def processes_at(end: str, call: str) -> frozenset[int] | None:
    """The processes (ids) that have this end open, if ``call`` is possible there (rule 2); None if unknown."""
    if not shows_all_processes():
        return None
    own, left = session_of(os.getpid()), DESCRIPTORS_MAX
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
        if any(is_end(str(pid), one, end, call) for one in descriptors):
            found.add(pid)
    return frozenset(found)


def is_end(pid: str, descriptor: str, name: str, call: str) -> bool:
    """Whether a descriptor of a process (id or ``self``) is the end of this name, and ``call`` is possible there."""
    process = _PROC / pid
    try:
        if str((process / "fd" / descriptor).readlink()) != name:
            return False
        flags = _FLAGS.search((process / "fdinfo" / descriptor).read_text())
    except OSError:  # closed meanwhile
        return False
    mode = os.O_RDWR if flags is None else int(flags[1], 8) & os.O_ACCMODE
    return mode in ((os.O_RDONLY, os.O_RDWR) if call == "read" else (os.O_WRONLY, os.O_RDWR))
