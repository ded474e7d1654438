"""urllib3's blocking connection pools: reading a response to its end, or releasing it, releases its connection.

Until there is a response, the thread inside ``urlopen`` holds the connection.
"""

from __future__ import annotations

from typing import Any

from stilltrue.runtime.introspection.frames import variables_of
from stilltrue.runtime.look.code.attributes import UNKNOWN
from stilltrue.runtime.waits.pools.shares import PoolState, deadline_of_queue, has_type, number, read, wait_for_share
from stilltrue.runtime.waits.wait import CallStack, ProcessView, Resolver, SeenWait


def _read(stack: CallStack, at: int, view: ProcessView) -> SeenWait | None:
    pool = variables_of(stack.frames[at]).get("self")
    if stack.task is not None or not has_type(pool, "urllib3.connectionpool", "HTTPConnectionPool"):
        return None
    waits, until = deadline_of_queue(stack, at, view.epoch)
    free, most = read(pool, "pool", "queue"), number(read(pool, "pool", "maxsize"))
    if not waits or read(pool, "block") is not True or free is UNKNOWN or most is None or len(free):
        return None
    state = PoolState(
        pool=pool,
        name="a urllib3 pool",
        taken=most,
        share_of=lambda thing: _share_of(thing, pool),
        until=until,
        kinds=(("urllib3.response", "HTTPResponse"),),
    )
    return wait_for_share(state, view)


def _share_of(thing: Any, pool: Any) -> Any:
    if not has_type(thing, "urllib3.response", "HTTPResponse") or read(thing, "_pool") is not pool:
        return None
    connection = read(thing, "_connection")
    return None if connection is UNKNOWN else connection


RESOLVERS = (Resolver((("urllib3/connectionpool.py", "HTTPConnectionPool._get_conn"),), _read),)
