"""The resolvers, in the order in which they are asked, and the lookup by frame."""

from __future__ import annotations

from collections.abc import Sequence
from types import CodeType, FrameType

from stilltrue.runtime import compat
from stilltrue.runtime.bytecode.qualified_names import qualname_of
from stilltrue.runtime.introspection.code_cache import cached_by_code
from stilltrue.runtime.introspection.origins import is_application, is_library
from stilltrue.runtime.waits import pools
from stilltrue.runtime.waits.databases import redis_locks
from stilltrue.runtime.waits.databases import resolver as databases
from stilltrue.runtime.waits.files import resolver as files
from stilltrue.runtime.waits.futures import resolver as futures
from stilltrue.runtime.waits.holders.gates import gates, keyed_gates
from stilltrue.runtime.waits.holders.queues import queue_pools
from stilltrue.runtime.waits.pipes import asyncio_children, child_files
from stilltrue.runtime.waits.pipes import resolver as pipes
from stilltrue.runtime.waits.process_pools import executors as process_executors
from stilltrue.runtime.waits.process_pools import pools as process_pools
from stilltrue.runtime.waits.reachability.simple_queues import queue_awaited
from stilltrue.runtime.waits.resolvers import (
    executors,
    future_results,
    imports,
    locks,
    manager_locks,
    polled_ends,
    polling_loops,
    processes,
    shared_locks,
    thread_pools,
)
from stilltrue.runtime.waits.resolvers.event_loops import anyio_waits, asgiref_waits, loops, reactors
from stilltrue.runtime.waits.resolvers.servers import channel_callbacks, stopping_servers
from stilltrue.runtime.waits.resolvers.servers import socket_servers as servers
from stilltrue.runtime.waits.semaphores import conditions
from stilltrue.runtime.waits.streams import intercepted, writes
from stilltrue.runtime.waits.wait import CallStack, ProcessView, Resolver, SeenWait

RESOLVERS: tuple[Resolver, ...] = (
    *process_executors.RESOLVERS,
    *future_results.RESOLVERS,
    *imports.RESOLVERS,
    *thread_pools.RESOLVERS,
    *process_pools.RESOLVERS,
    *locks.RESOLVERS,
    *executors.RESOLVERS,
    *futures.RESOLVERS,
    *gates.RESOLVERS,
    *keyed_gates.RESOLVERS,
    *queue_pools.RESOLVERS,
    *loops.RESOLVERS,
    *servers.RESOLVERS,
    *stopping_servers.RESOLVERS,
    *reactors.RESOLVERS,
    *channel_callbacks.RESOLVERS,
    *anyio_waits.RESOLVERS,
    *asgiref_waits.RESOLVERS,
    *pools.RESOLVERS,
    *databases.RESOLVERS,
    *redis_locks.RESOLVERS,
    *files.RESOLVERS,
    *asyncio_children.RESOLVERS,
    *polled_ends.RESOLVERS,
    *processes.RESOLVERS,
    *child_files.RESOLVERS,
    *shared_locks.RESOLVERS,
    *manager_locks.RESOLVERS,
    *pipes.RESOLVERS,
    *conditions.RESOLVERS,
    *writes.RESOLVERS,
    *intercepted.RESOLVERS,
)
FRAMES_MAX = 16
"""Number of innermost frames that are searched for a library's wait."""


def resolve(stack: CallStack, view: ProcessView) -> SeenWait | None:
    """The wait at ``stack``; None if no resolver knows it. The outermost library is asked first."""
    frames = stack.frames[:FRAMES_MAX]
    for at in range(len(frames) - 1, -1, -1):
        for resolver in _resolvers_for(frames[at].f_code):
            found = resolver.read(stack, at, view)
            if found is not None and (resolver.of_shells or not is_of_shells(frames)):
                return found
    for resolver in _ANYWHERE if frames else ():
        found = resolver.read(stack, 0, view)
        if found is not None and not is_of_shells(frames):
            return found
    return None


def may_wait(frames: Sequence[FrameType]) -> bool:
    """Whether a thread with these frames, innermost first, may be in a wait that a resolver knows."""
    if not frames:
        return False
    if compat.awaited_at(frames[0]) is not None or locks.lock_acquired(frames) is not None:
        return True
    if files.calls_flock(frames[0].f_code) or processes.calls_waitpid(frames[0].f_code):
        return True
    if polling_loops.may_poll(frames) or child_files.may_wait(frames) or queue_awaited(frames[0]) is not None:
        return True
    starts = any(frame.f_code is compat.THREAD_START for frame in frames[:FRAMES_MAX])
    return not starts and any(_resolvers_for(frame.f_code) for frame in frames[:FRAMES_MAX])


def is_of_shells(frames: Sequence[FrameType]) -> bool:
    """Whether the wait is the agent's own or gRPC's: it is recorded, or soon over."""
    for frame in frames:
        if not is_library(frame.f_code):
            return not is_application(frame.f_code)
    return False


@cached_by_code
def _resolvers_for(code: CodeType) -> tuple[Resolver, ...]:
    """The resolvers of waits in this code."""
    file = code.co_filename.replace("\\", "/")
    return tuple(one for one in RESOLVERS if any(file.endswith(end) and qualname_of(code) == name for end, name in one.places))


_ANYWHERE = tuple(one for one in RESOLVERS if not one.places)
