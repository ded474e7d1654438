"""httpcore's connection pools, which httpx uses: reading or closing a response releases its connection.

If connections serve several requests at once (HTTP/2), the wait is unknown unless all their requests are found.
"""

from __future__ import annotations

from typing import Any

from stilltrue.runtime.introspection.frames import variables_of
from stilltrue.runtime.look.code.attributes import UNKNOWN
from stilltrue.runtime.waits.pools.lost_shares import has_no_other_references
from stilltrue.runtime.waits.pools.shares import PoolState, frame_named, has_type, number, read, wait_for_share
from stilltrue.runtime.waits.wait import CallStack, ProcessView, Resolver, SeenWait

_SYNC, _ASYNC = "httpcore._sync.connection_pool", "httpcore._async.connection_pool"
_POOLS = (("httpcore", "ConnectionPool"), ("httpcore", "AsyncConnectionPool"))
_REQUESTS = ((_SYNC, "PoolRequest"), (_ASYNC, "AsyncPoolRequest"))
_STREAMS = ((_SYNC, "PoolByteStream"), (_ASYNC, "PoolByteStream"))


def _read(stack: CallStack, at: int, view: ProcessView) -> SeenWait | None:
    names = variables_of(stack.frames[at])
    pool = names.get("self")
    waiting = frame_named(stack, "PoolRequest.wait_for_connection", at) or frame_named(
        stack, "AsyncPoolRequest.wait_for_connection", at
    )
    if waiting is None or not any(has_type(pool, *kind) for kind in _POOLS):
        return None
    until = None
    if stack.task is None and (timeout := variables_of(waiting).get("timeout")) is not None:
        until = view.now + timeout if isinstance(timeout, int | float) else view.now  # at the latest
    taken = _taken(pool)
    if taken is None:
        return None
    known = set(map(id, taken))
    requests = read(pool, "_requests")
    state = PoolState(
        pool=pool,
        name="an httpcore pool",
        taken=len(known),
        share_of=lambda thing: _share_of(thing, known),
        until=until,
        kinds=(*_STREAMS, *_REQUESTS),
        lost=lambda: sum(has_no_other_references(taken, index, (requests,)) for index in range(len(taken))),
    )
    return wait_for_share(state, view)


def _taken(pool: Any) -> list[Any] | None:
    """The requests with a connection if the pool is full and each connection has a request; None if not, or if unknown."""
    connections, requests = read(pool, "_connections"), read(pool, "_requests")
    most = number(read(pool, "_max_connections"))
    if type(connections) is not list or type(requests) is not list or most is None or len(connections) < most:
        return None
    assigned = {id(one): read(one, "connection") for one in list(requests)}
    having = [one for one in list(requests) if assigned.get(id(one)) is not None]
    if any(assigned[id(one)] is UNKNOWN for one in having):
        return None
    return having if {id(one) for one in list(connections)} == {id(assigned[id(one)]) for one in having} else None


def _share_of(thing: Any, taken: set[int]) -> Any:
    request = thing
    if any(has_type(thing, *kind) for kind in _STREAMS):
        request = read(thing, "_pool_request") if read(thing, "_closed") is False else None
    elif not any(has_type(thing, *kind) for kind in _REQUESTS):
        return None
    return request if id(request) in taken else None


RESOLVERS = (
    Resolver(
        (
            ("httpcore/_sync/connection_pool.py", "ConnectionPool.handle_request"),
            ("httpcore/_async/connection_pool.py", "AsyncConnectionPool.handle_async_request"),
        ),
        _read,
    ),
)
