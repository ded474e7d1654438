"""Reads from Linux which file a thread waits to lock, and which locks this process has. Nothing here opens or stats a file.

Rules:

1. A file is the same for all processes of a machine if the kernel's own numbers for it are the same: those of its file system
   and of its inode. ``os.stat`` may give others (overlayfs, btrfs); ``/proc/locks`` and ``fdinfo`` do not.
2. A lock made by ``flock()`` belongs to the open file. ``fdinfo`` shows it at every descriptor of that open file, in whichever
   process, and at no other. So an exclusive one that only one descriptor shows is released only through that descriptor.
   A lock that another process has made (the parent, before the fork) does not count as this process's.
3. A lock made by ``lockf()`` or ``fcntl()`` (POSIX) belongs to the process; it is independent of those made by ``flock()``.
   ``fdinfo`` shows it at the open file through which it was made. The process releases it by closing any descriptor of the
   file, whichever it is, so only one descriptor of this process may be open on the file.
4. What is unknown, cannot be read, or is shown in another form (an older kernel, another system) is not a lock.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_PROC = Path("/proc")
_OWN = _PROC / "self"
_BOOT = _PROC / "sys/kernel/random/boot_id"
_FLOCK = {"x86_64": 73, "aarch64": 32}
_NOT_BLOCKING = 4
_FCNTL = {"x86_64": 72, "aarch64": 25}
_F_SETLKW = 7
_LOCK = re.compile(r"^lock:\s*\d+: (FLOCK|POSIX) +ADVISORY +WRITE +(\d+) ([0-9a-f]+):([0-9a-f]+):(\d+) 0 EOF$", re.M)
_INODE = re.compile(r"^ino:\s*(\d+)$", re.M)
_MOUNT = re.compile(r"^mnt_id:\s*(\d+)$", re.M)
LOCKS_BYTES_MAX = 1 << 16
"""Bytes to read of ``/proc/locks``; in a longer list this process may have a lock."""
DESCRIPTORS_MAX = 50_000
_STARTED = 19
"""Position of the start time in ``/proc/PID/stat`` after the name, which ends with the last parenthesis."""


@dataclass(frozen=True, slots=True)
class File:
    """A file by the numbers of its file system and its inode (rule 1); ``posix``: as locked by ``lockf()`` (rule 3)."""

    major: int
    minor: int
    inode: int
    posix: bool = False


def lock_resource(file: File) -> str | None:
    """The name of a file's lock, the same in all processes of the machine; None if the machine is unknown."""
    where = machine()
    kind = "POSIX file lock" if file.posix else "file lock"
    return None if where is None else f"{kind} {file.major}:{file.minor}:{file.inode} of machine {where}"


def may_have_locks() -> bool:
    """Whether this process may have locked a file exclusively, and not released it."""
    if sys.platform != "linux" or "fcntl" not in sys.modules:
        return False
    try:
        own = _OWN.readlink().name
        with (_PROC / "locks").open("rb", buffering=0) as locks:
            text = b""
            while len(text) < LOCKS_BYTES_MAX and (more := locks.read(LOCKS_BYTES_MAX)):
                text += more
    except OSError:
        return False
    kinds = (f" {kind}  ADVISORY  WRITE {own} ".encode() for kind in ("FLOCK", "POSIX"))
    return len(text) >= LOCKS_BYTES_MAX or any(one in text for one in kinds)


def locked_through(descriptor: int) -> File | None:
    """The file that this process has exclusively locked on a descriptor."""
    try:
        own = _OWN.readlink().name
    except OSError:
        return None
    return _locked(descriptor, "self", own)


def _locked(descriptor: int, process: str, by: str | None = None) -> File | None:
    """The file that a process's descriptor shows as locked; ``by``: only by this process."""
    found = _LOCK.search(_description(descriptor, process))
    if found is None or by not in (None, found[2]):
        return None
    return File(int(found[3], 16), int(found[4], 16), int(found[5]), posix=found[1] == "POSIX")


def file_at(descriptor: int, *, posix: bool = False) -> File | None:
    """The file that a descriptor of this process is open on; ``posix``: for a lock by ``lockf()``."""
    text = _description(descriptor, "self")
    inode, mount = _INODE.search(text), _MOUNT.search(text)
    device = None if mount is None else _devices().get(mount[1]) or _devices(fresh=True).get(mount[1])
    return None if inode is None or device is None else File(*device, int(inode[1]), posix=posix)


def awaited_by(thread: int) -> tuple[int, bool] | None:
    """The descriptor that a thread (native id) waits to lock without a limit, and whether in ``fcntl()``; None: it does not."""
    call, machine = system_call_of(thread), os.uname().machine
    if call is not None and call[0] == _FLOCK.get(machine) and not call[2] & _NOT_BLOCKING:
        return call[1], False
    if call is not None and call[0] == _FCNTL.get(machine) and call[2] == _F_SETLKW:
        return call[1], True
    return None


def system_call_of(thread: int) -> tuple[int, ...] | None:
    """The number and the arguments of the system call in which a thread (native id) is blocked; None if it is in none."""
    try:
        number, *arguments = (_OWN / "task" / str(thread) / "syscall").read_text().split()
        return (int(number), *(int(one, 16) for one in arguments[:6]))
    except (OSError, ValueError):  # it runs, or the system does not show it
        return None


def path_of(descriptor: int) -> str:
    """The path of the file of a descriptor, for people."""
    try:
        return str((_OWN / "fd" / str(descriptor)).readlink())
    except OSError:
        return "a file"


def descriptors_on(file: File) -> int:
    """How many descriptors of this process are open on a file (rule 3)."""
    try:
        names = [int(one.name) for one in (_OWN / "fd").iterdir()]
    except OSError:
        return 0
    return sum(file_at(one, posix=file.posix) == file for one in names)


def locking_descriptors(file: File) -> tuple[int, int, str]:
    """How many descriptors of this process, and of its other processes, have locked a file (rule 2), and what is in doubt.

    A descriptor can be inherited only by a process that has started later.
    """
    number = os.getpid()
    budget = DESCRIPTORS_MAX
    own = others = 0
    doubt = ""
    started = _started("self")
    if started is None:
        return 0, 0, "the processes of its machine cannot be read"
    for process in ("self", *_later_processes(number, started)):
        try:
            names = [one.name for one in (_PROC / process / "fd").iterdir()]
        except OSError:  # it has ended, or belongs to another user, which inherits nothing here
            doubt = doubt or (f"process {process}, its child, cannot be read" if _parent(process) == number else "")
            continue
        budget -= len(names)
        if budget < 0:
            return own, others, "too many files are open on its machine"
        holds = sum(_locked(int(name), process) == file for name in names)
        own, others = (own + holds, others) if process == "self" else (own, others + holds)
    return own, others, doubt


def _later_processes(own: int, started: int) -> Iterator[str]:
    for name in (one.name for one in _PROC.iterdir()):
        if name.isdigit() and int(name) != own and (_started(name) or 0) >= started:
            yield name


def _started(process: str) -> int | None:
    return _field(process, _STARTED)


def _parent(process: str) -> int | None:
    return _field(process, 1)


def _field(process: str, index: int) -> int | None:
    try:
        return int((_PROC / process / "stat").read_text(errors="replace").rpartition(")")[2].split()[index])
    except (OSError, IndexError, ValueError):  # it has ended
        return None


def _description(descriptor: int, process: str) -> str:
    try:
        return (_PROC / process / "fdinfo" / str(descriptor)).read_text()
    except OSError:
        return ""


@cache
def machine() -> str | None:
    """The machine, until it boots again; None if unknown."""
    try:
        return _BOOT.read_text().strip() or None
    except OSError:
        return None


class _Mounts:
    """The device of each mount, read again at most once a second: a mount may be new."""

    def __init__(self) -> None:
        self.devices: dict[str, tuple[int, int]] = {}
        self._read_at = float("-inf")

    def read(self) -> None:
        if time.monotonic() < self._read_at + 1:
            return
        self._read_at = time.monotonic()
        try:
            rows = [line.split()[:3] for line in (_OWN / "mountinfo").read_text(errors="replace").splitlines()]
        except OSError:
            return
        pairs = ((row[0], row[2].split(":")) for row in rows if len(row) == 3)
        self.devices = {mount: (int(major), int(minor)) for mount, (major, minor) in pairs}


_mounts = _Mounts()


def _devices(*, fresh: bool = False) -> dict[str, tuple[int, int]]:
    if fresh:
        _mounts.read()
    return _mounts.devices
