"""Connections of HTTP servers over TCP that nothing accepts or reads while a server's thread is blocked (Linux).

Rules:

1. A thread that runs an event loop, or the only thread of a server, accepts and reads nothing while it is blocked. So requests
   wait for it on the connections queued at its listening sockets, and on those that its loop reads.
2. This holds only if nothing else can accept or read them: every socket that listens on the port belongs to this thread, no
   other thread of the process accepts from it now, and no other process has it or one of the connections
   (:mod:`stilltrue.runtime.transport.tcp`).
3. Streams are not counted on such a connection: it is enough that a call is on it which no member has seen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from types import FrameType

from stilltrue.protocol.report import Connection
from stilltrue.runtime import compat
from stilltrue.runtime.transport.blocked_servers import BlockedServer
from stilltrue.runtime.transport.channelz import namespace
from stilltrue.runtime.transport.tcp import SOCKETS, are_ours_alone, inodes_of, own_descriptors, port_of


def connection_between(ends: tuple[str, str], age_seconds_max: float) -> Connection | None:
    """The connection from the first address to the second, or None if it is gone."""
    for one in SOCKETS.read(age_seconds_max) or ():
        if (one.local, one.remote) == ends and one.inode:
            return Connection(name=_name(*ends), socket=one.inode)
    return None


def connections_behind(
    server: BlockedServer, threads: Collection[Iterable[FrameType]], age_seconds_max: float
) -> list[Connection]:
    """The connections that wait for the thread of ``server``; ``threads``: the frames of all threads."""
    own, read = _sockets_of(server)
    sockets = (SOCKETS.read(age_seconds_max) if own else None) or ()
    ports = {port_of(one.local) for one in sockets if one.listens and one.inode in own}
    ports -= {port_of(one.local) for one in sockets if one.listens and one.inode not in own}  # rule 2
    listening = {one.inode for one in sockets if one.listens and port_of(one.local) in ports}
    found = [one for one in sockets if not one.listens and port_of(one.local) in ports and (not one.inode or one.inode in read)]
    if not found or not _has_one_acceptor(listening, threads):
        return []
    if not are_ours_alone(listening | {one.inode for one in found if one.inode}):
        return []
    return [Connection(name=_name(one.remote, one.local), socket=one.inode) for one in found]


def _name(dialled: str, accepted: str) -> str:
    return f"{namespace()}:{dialled}>{accepted}"


def _sockets_of(server: BlockedServer) -> tuple[frozenset[int], frozenset[int]]:
    """The inodes of the sockets from which its thread accepts, and of those that it reads."""
    if server.acceptor is not None:
        return inodes_of([server.acceptor.fileno()]), frozenset()
    if server.loop is None:
        return frozenset(), frozenset()
    watched = inodes_of(compat.descriptors_of(server.loop))
    if watched:
        return watched, watched
    # /proc does not show which sockets uvloop reads, but this loop reads all connections that uvicorn accepts on its ports
    return inodes_of([one for frame in server.frames for one in compat.uvicorn_sockets(frame)]), inodes_of(own_descriptors())


def _has_one_acceptor(listening: Collection[int], threads: Collection[Iterable[FrameType]]) -> bool:
    """Rule 2, in this process."""
    acceptors = Counter(inode for frames in threads for inode in _accepted_in(frames))
    return all(acceptors[inode] == 1 for inode in listening)


def _accepted_in(frames: Iterable[FrameType]) -> frozenset[int]:
    """The inodes of the sockets from which a thread with these frames accepts, now or when it returns to them."""
    descriptors: list[int] = []
    for frame in frames:
        loop = compat.loop_in(frame)
        descriptors += [] if loop is None else compat.descriptors_of(loop)
        descriptors += compat.uvicorn_sockets(frame)
        found = compat.server_socket(frame) or compat.accepting_socket(frame)
        descriptors += [] if found is None else [found.fileno()]
    return inodes_of(descriptors)
