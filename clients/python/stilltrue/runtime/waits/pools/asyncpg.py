"""asyncpg's ``Pool``.

Rules:

1. A wait for a connection ends by itself only if ``acquire`` got a timeout, which is a timer of the loop.
2. ``close()`` waits until each connection is released, by whoever has it.
"""

from __future__ import annotations

from typing import Any

from stilltrue.runtime.introspection.frames import variables_of
from stilltrue.runtime.look.code.attributes import UNKNOWN
from stilltrue.runtime.waits.pools.lost_shares import has_no_other_references
from stilltrue.runtime.waits.pools.shares import PoolState, frame_named, has_type, read, wait_for_share
from stilltrue.runtime.waits.wait import CallStack, ProcessView, Resolver, SeenWait


def _read(stack: CallStack, at: int, view: ProcessView) -> SeenWait | None:
    pool = variables_of(stack.frames[at]).get("self")
    waits = frame_named(stack, "Queue.get", at) is not None  # otherwise it is connecting
    if stack.task is None or not waits or not has_type(pool, "asyncpg.pool", "Pool"):
        return None
    if _ends_sessions(pool):
        return None
    holders, free = read(pool, "_holders"), read(pool, "_queue", "_queue")
    if type(holders) is not list or free is UNKNOWN or len(free) or read(pool, "_closing") is not False:
        return None
    state = PoolState(
        pool=pool,
        name="an asyncpg pool",
        taken=len(holders),
        share_of=lambda thing: _share_of(thing, pool),
        closers=(pool,),
        lines=(read(pool, "_queue"),),
        kinds=(("asyncpg.pool", "PoolConnectionProxy"),),
        lost=lambda: _lost(pool),
    )
    return wait_for_share(state, view)


def _read_close(stack: CallStack, at: int, view: ProcessView) -> SeenWait | None:
    """Rule 2: of the task in which ``close()`` awaits one connection."""
    holder = variables_of(stack.frames[at]).get("self")
    if stack.task is None or read(holder, "_in_use") is not stack.future:
        return None
    pool = read(holder, "_pool")
    if not has_type(pool, "asyncpg.pool", "Pool") or _ends_sessions(pool):
        return None
    state = PoolState(
        pool=holder,
        name="an asyncpg pool",
        taken=1,
        share_of=lambda thing: holder if _share_of(thing, pool) is holder else None,
        closers=(pool,),
        kinds=(("asyncpg.pool", "PoolConnectionProxy"),),
        what="the release of a connection of an asyncpg pool that is being closed, which {} holds",
    )
    return wait_for_share(state, view)


def _lost(pool: Any) -> int:
    """The number of acquired connections that cannot be released, as nothing refers to their proxies any more."""
    holders = read(pool, "_holders")
    return sum(_is_lost(holders, index) for index in range(len(holders))) if type(holders) is list else 0


def _is_lost(holders: list[Any], index: int) -> bool:
    proxies = [read(holders[index], "_proxy")]
    connection = read(holders[index], "_con")
    if not has_type(proxies[0], "asyncpg.pool", "PoolConnectionProxy") or read(proxies[0], "_con") is not connection:
        return False
    if not has_no_other_references(proxies, 0, (holders[index], connection)):
        return False
    return has_no_other_references(holders, index, proxies, weak=1)  # otherwise a task is just releasing it


def _ends_sessions(pool: Any) -> bool:
    """Whether the server may end idle sessions, after which the pool takes a lost connection back."""
    arguments = read(pool, "_connect_kwargs")
    settings = dict.get(arguments, "server_settings") if type(arguments) is dict else UNKNOWN
    return settings is not None and (type(settings) is not dict or any("timeout" in str(name) for name in settings))


def _share_of(thing: Any, pool: Any) -> Any:
    if not has_type(thing, "asyncpg.pool", "PoolConnectionProxy") or read(thing, "_con") in (None, UNKNOWN):
        return None
    holder = read(thing, "_holder")
    used = read(holder, "_in_use")
    return holder if read(holder, "_pool") is pool and read(holder, "_proxy") is thing and used not in (None, UNKNOWN) else None


RESOLVERS = (
    Resolver((("asyncpg/pool.py", "Pool._acquire.<locals>._acquire_impl"),), _read),
    Resolver((("asyncpg/pool.py", "PoolConnectionHolder.wait_until_released"),), _read_close),
)
