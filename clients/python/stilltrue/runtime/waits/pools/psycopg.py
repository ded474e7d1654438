"""psycopg's ``ConnectionPool`` and ``AsyncConnectionPool``: every wait for a connection has a timeout."""

from __future__ import annotations

import threading
from typing import Any

from stilltrue.runtime import compat
from stilltrue.runtime.introspection.frames import variables_of
from stilltrue.runtime.look.code.attributes import UNKNOWN
from stilltrue.runtime.waits.pools.shares import PoolState, frame_named, has_type, number, read, wait_for_share
from stilltrue.runtime.waits.wait import CallStack, Ender, ProcessView, Resolver, SeenWait

_PLACES = (("psycopg_pool/pool.py", "ConnectionPool.getconn"), ("psycopg_pool/pool_async.py", "AsyncConnectionPool.getconn"))
_CONNECTIONS = (("psycopg", "Connection"), ("psycopg", "AsyncConnection"))
_KINDS = (("psycopg_pool.pool", "ConnectionPool"), ("psycopg_pool.pool_async", "AsyncConnectionPool"))


def _read(stack: CallStack, at: int, view: ProcessView) -> SeenWait | None:
    names = variables_of(stack.frames[at])
    pool, deadline = names.get("self"), names.get("deadline")
    inner = frame_named(stack, "WaitingClient.wait", at)
    if inner is None or not any(has_type(pool, *kind) for kind in _KINDS) or not isinstance(deadline, float):
        return None
    position = variables_of(inner).get("self")
    taken = _taken(pool)
    if taken is None or read(position, "conn") is not None or read(position, "error") is not None:
        return None
    state = PoolState(
        pool=pool,
        name="a psycopg pool",
        taken=taken,
        share_of=lambda thing: _share_of(thing, pool),
        until=view.epoch(deadline) if stack.task is None else None,  # a task's timeout is a timer of the loop
        closers=(pool,),
        kinds=_CONNECTIONS,
        helpers=_helpers(pool),
    )
    return wait_for_share(state, view)


def _taken(pool: Any) -> int | None:
    """The number of taken connections if the pool is full and is not growing; None if not, or if unknown."""
    free, count, most = read(pool, "_pool"), number(read(pool, "_nconns")), number(read(pool, "_max_size"))
    if free is UNKNOWN or count is None or most is None or read(pool, "_closed") is not False:
        return None
    return count if not free and count >= most and read(pool, "_growing") is False else None


def _helpers(pool: Any) -> tuple[Ender, ...]:
    """The pool's own threads or tasks, which make, check and close connections on request."""
    workers, scheduler = read(pool, "_workers"), read(pool, "_sched_runner")
    known = (*(list(workers) if type(workers) is list else ()), scheduler)
    threads = [one.ident for one in known if isinstance(one, threading.Thread) and one.ident is not None]
    return (*threads, *(one for one in known if compat.is_task(one)))


def _share_of(thing: Any, pool: Any) -> Any:
    if not any(has_type(thing, *kind) for kind in _CONNECTIONS):
        return None
    return thing if read(thing, "_pool") is pool else None


RESOLVERS = (Resolver(_PLACES, _read),)
