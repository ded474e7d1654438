"""redis-py's ``BlockingConnectionPool``, for threads and for asyncio."""

from __future__ import annotations

from typing import Any
from weakref import WeakSet

from stilltrue.runtime.introspection.frames import variables_of
from stilltrue.runtime.look.code.attributes import UNKNOWN
from stilltrue.runtime.waits.pools.lost_shares import has_no_other_references, library_parts
from stilltrue.runtime.waits.pools.shares import (
    PoolState,
    deadline_of_queue,
    frame_named,
    has_type,
    number,
    read,
    wait_for_share,
)
from stilltrue.runtime.waits.wait import CallStack, ProcessView, Resolver, SeenWait

_PARTS = tuple(
    f"redis.{name}" for name in ("_parsers", "asyncio.connection", "connection", "credentials", "maint_notifications", "retry")
)
"""The modules of a connection's parts. The classes for commands are not among them: they hold connections."""
_GET = "BlockingConnectionPool.get_connection"


def _read(stack: CallStack, at: int, view: ProcessView) -> SeenWait | None:
    pool = variables_of(stack.frames[at]).get("self")
    if stack.task is not None or not has_type(pool, "redis.connection", "BlockingConnectionPool"):
        return None
    waits, until = deadline_of_queue(stack, at, view.epoch)
    free, made, most = read(pool, "pool", "queue"), read(pool, "_connections"), number(read(pool, "max_connections"))
    if not waits or free is UNKNOWN or type(made) is not list or most is None or len(free) or len(made) != most:
        return None
    return wait_for_share(_state(pool, made, until, ()), view)


def _read_of_task(stack: CallStack, at: int, view: ProcessView) -> SeenWait | None:
    pool = variables_of(stack.frames[at]).get("self")
    waits = frame_named(stack, "Condition.wait", at) is not None
    if stack.task is None or not waits or not has_type(pool, "redis.asyncio.connection", "BlockingConnectionPool"):
        return None
    free, used = read(pool, "_available_connections"), read(pool, "_in_use_connections")
    most = number(read(pool, "max_connections"))
    if free is UNKNOWN or len(free) or type(used) not in (set, WeakSet) or most is None or len(used) < most:
        return None
    return wait_for_share(_state(pool, list(used), None, (used,)), view)


def _state(pool: Any, taken: list[Any], until: float | None, kept: tuple[Any, ...]) -> PoolState:
    """``kept``: the parts of the pool, besides the list ``taken``, that refer to the connections."""
    known = {id(one) for one in taken}
    return PoolState(
        pool=pool,
        name="a Redis connection pool",
        taken=len(known),
        share_of=lambda thing: thing if id(thing) in known else None,
        until=until,
        lost=lambda: sum(
            has_no_other_references(taken, index, (*kept, *library_parts(taken[index], _PARTS, pool)))
            for index in range(len(taken))
        ),
    )


RESOLVERS = (
    Resolver((("redis/connection.py", _GET),), _read),
    Resolver((("redis/asyncio/connection.py", _GET),), _read_of_task),
)
