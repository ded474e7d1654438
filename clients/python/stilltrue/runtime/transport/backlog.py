"""Connections that no thread can accept or read while a holder waits: of servers that speak HTTP over TCP (Linux).

Rules:

1. A thread that runs an event loop, or the only thread of a server, accepts nothing and reads nothing while it is blocked. So
   what its listening sockets have queued waits for it, and what comes over the connections that its loop reads.
2. Only where nobody else can: every socket that listens at the port is this thread's, no other thread of the process accepts
   from it now, and no other process has it, or one of the connections (:mod:`stilltrue.runtime.transport.tcp`).
3. Such a connection counts no streams: that a call is on it, and has not been seen by anybody, is enough.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from types import FrameType

from stilltrue.protocol.report import Connection
from stilltrue.runtime import compat
from stilltrue.runtime.transport.channelz import namespace
from stilltrue.runtime.transport.holders import Holder
from stilltrue.runtime.transport.tcp import SOCKETS, are_ours_alone, inodes_of, own_descriptors, port_of


def connection_between(ends: tuple[str, str], age_seconds_max: float) -> Connection | None:
    """The connection that was made from the first address to the second; None: it is not there any more."""
    for one in SOCKETS.read(age_seconds_max) or ():
        if (one.local, one.remote) == ends and one.inode:
            return Connection(name=_name(*ends), socket=one.inode)
    return None


def connections_behind(holder: Holder, threads: Collection[Iterable[FrameType]], age_seconds_max: float) -> list[Connection]:
    """Those that wait for the thread of ``holder``; ``threads``: the frames of all threads."""
    own, read = _sockets_of(holder)
    sockets = (SOCKETS.read(age_seconds_max) if own else None) or ()
    ports = {port_of(one.local) for one in sockets if one.listens and one.inode in own}
    ports -= {port_of(one.local) for one in sockets if one.listens and one.inode not in own}  # rule 2
    listening = {one.inode for one in sockets if one.listens and port_of(one.local) in ports}
    found = [one for one in sockets if not one.listens and port_of(one.local) in ports and (not one.inode or one.inode in read)]
    if not found or not _is_accepted_by_one(listening, threads):
        return []
    if not are_ours_alone(listening | {one.inode for one in found if one.inode}):
        return []
    return [Connection(name=_name(one.remote, one.local), socket=one.inode) for one in found]


def _name(dialled: str, accepted: str) -> str:
    return f"{namespace()}:{dialled}>{accepted}"


def _sockets_of(holder: Holder) -> tuple[frozenset[int], frozenset[int]]:
    """Those from which its thread accepts, and those that it reads."""
    if holder.acceptor is not None:
        return inodes_of([holder.acceptor.fileno()]), frozenset()
    if holder.loop is None:
        return frozenset(), frozenset()
    watched = inodes_of(compat.descriptors_of(holder.loop))
    if watched:
        return watched, watched
    # /proc does not show what uvloop's reads; but whatever uvicorn has accepted at its ports, this loop reads
    return inodes_of([one for frame in holder.frames for one in compat.uvicorn_in(frame)]), inodes_of(own_descriptors())


def _is_accepted_by_one(listening: Collection[int], threads: Collection[Iterable[FrameType]]) -> bool:
    """Rule 2, in this process."""
    taken = Counter(inode for frames in threads for inode in _accepted_in(frames))
    return all(taken[inode] == 1 for inode in listening)


def _accepted_in(frames: Iterable[FrameType]) -> frozenset[int]:
    """The sockets from which a thread with these frames takes connections, now or when it comes back to them."""
    descriptors: list[int] = []
    for frame in frames:
        loop = compat.loop_in(frame)
        descriptors += [] if loop is None else compat.descriptors_of(loop)
        descriptors += compat.uvicorn_in(frame)
        found = compat.acceptor_in(frame) or compat.accepted_from(frame)
        descriptors += [] if found is None else [found.fileno()]
    return inodes_of(descriptors)
