"""Reads the kernel's tables of TCP sockets (Linux).

They are read on the agent's own thread, never on the path of a call. A table that cannot be read or exceeds a bound is None,
and sockets of unknown ownership do not count as ours alone: a call that no member has seen then stays unlocated.

Rules:

1. A connection that its listening socket has not accepted has a line without an inode; any process with that socket may accept
   it.
2. Only a look at all other processes shows that this process alone has a socket. A process that we may not look at does not
   have it, unless it is our parent, our parent's child or our descendant, or sockets were passed to us (as by systemd).
"""

from __future__ import annotations

import ipaddress
import os
import sys
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from stilltrue.runtime.transport.channelz import CachedRead, address_text

_TABLES = (Path("/proc/self/net/tcp"), Path("/proc/self/net/tcp6"))
_PROCESSES = Path("/proc")
_ESTABLISHED, _HUNG_UP, _LISTENING = "01", "08", "0A"
_PASSED_ON = "LISTEN_FDS"
_STATES = frozenset({_ESTABLISHED, _HUNG_UP, _LISTENING})
ROWS_MAX = 5_000
LINES_MAX = 50_000
"""Most lines of a busy machine are of connections that have ended: it keeps each for a minute."""
PROCESSES_MAX = 2_000
DESCRIPTORS_MAX = 100_000


class Socket(NamedTuple):
    """A line of a table: the local and remote address, and the socket's ``inode`` (0: not accepted yet)."""

    local: str
    remote: str
    inode: int
    listens: bool = False


def _read() -> list[Socket]:
    """The sockets that are connected or listen. Raises ``OSError``, ``ValueError``, and ``OverflowError`` beyond the bounds."""
    found: list[Socket] = []
    for table in _TABLES:
        if not table.exists():  # without IPv6
            continue
        with table.open() as lines:
            next(lines, None)
            for at, line in enumerate(lines):
                if at >= LINES_MAX or len(found) >= ROWS_MAX:
                    raise OverflowError(table)
                state = line.split(None, 4)[3]
                if state in _STATES:
                    words = line.split()
                    local, remote = _address(words[1]), _address(words[2])
                    found.append(Socket(local, remote, int(words[9]), state == _LISTENING))
    return found


def _address(text: str) -> str:
    """``0100007F:1F90`` is ``127.0.0.1:8080``: 32-bit words in the machine's byte order."""
    plain, _, port = text.partition(":")
    words = (int(plain[at : at + 8], 16) for at in range(0, len(plain), 8))
    packed = b"".join(word.to_bytes(4, sys.byteorder) for word in words)
    return address_text(ipaddress.ip_address(packed), int(port, 16))


SOCKETS = CachedRead(_read)
"""All sockets of this network namespace that are connected or listen."""


def ends_of(local: object, remote: object) -> tuple[str, str] | None:
    """A socket's two addresses, as ``getsockname`` and ``getpeername`` return them, in our form; None if it is not TCP."""
    found: list[str] = []
    for address in (local, remote):
        if not isinstance(address, tuple | list) or len(address) < 2 or not isinstance(address[1], int):
            return None
        try:
            found.append(address_text(ipaddress.ip_address(str(address[0]).partition("%")[0]), address[1]))
        except ValueError:
            return None
    return found[0], found[1]


def port_of(address: str) -> str:
    """The port as text."""
    return address.rpartition(":")[2]


def own_descriptors() -> list[int]:
    """All open file descriptors of this process."""
    return [int(one.name) for one in (_PROCESSES / "self" / "fd").iterdir()]


def inodes_of(descriptors: Collection[int]) -> frozenset[int]:
    """The inodes of the sockets behind descriptors of this process."""
    found = set[int]()
    for descriptor in descriptors:
        try:
            found.add(os.fstat(descriptor).st_ino)
        except OSError:  # closed meanwhile
            continue
    return frozenset(found)


def are_ours_alone(inodes: Collection[int]) -> bool:
    """Whether no other process has one of these sockets (rule 2); False if unknown."""
    if _PASSED_ON in os.environ:
        return False
    names = {f"socket:[{inode}]" for inode in inodes}
    left = DESCRIPTORS_MAX
    try:
        processes = {int(entry.name) for entry in _PROCESSES.iterdir() if entry.name.isdigit()} - {os.getpid()}
        if len(processes) > PROCESSES_MAX or os.getppid() not in {0, *processes}:
            return False
        for process in processes:
            for target in _descriptors_of(process):
                left -= 1
                if target in names or left < 0:
                    return False
    except (OSError, ValueError):
        return False
    return True


def _descriptors_of(process: int) -> Iterator[str]:
    """The files that a process has open. Raises ``OSError`` if they must be known but cannot be read (rule 2)."""
    folder = _PROCESSES / str(process) / "fd"
    try:
        for entry in folder.iterdir():
            with suppress(FileNotFoundError):  # closed meanwhile
                yield str(entry.readlink())
    except FileNotFoundError:  # it has ended
        return
    except PermissionError:
        if _is_related(process):
            raise


def _is_related(process: int) -> bool:
    """Whether it is our parent, our parent's child, or our descendant."""
    own, parent = os.getpid(), os.getppid()
    if process == parent or _parent_of(process) == parent:
        return True
    while process > 1:
        process = _parent_of(process)
        if process == own:
            return True
    return False


def _parent_of(process: int) -> int:
    lines = (_PROCESSES / str(process) / "status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("PPid:"))
