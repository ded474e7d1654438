"""The ``Pool`` of aiopg and of aiomysql, whose waits for a connection have no timeout."""

from __future__ import annotations

from stilltrue.runtime.introspection.frames import variables_of
from stilltrue.runtime.look.code.attributes import UNKNOWN
from stilltrue.runtime.waits.pools.lost_shares import has_no_other_references, library_parts
from stilltrue.runtime.waits.pools.shares import PoolState, frame_named, has_type, number, read, wait_for_share
from stilltrue.runtime.waits.wait import CallStack, ProcessView, Resolver, SeenWait

_PARTS = {name: (f"{name}.connection", f"{name}.utils") for name in ("aiopg", "aiomysql")}
"""By library, the modules of a connection's parts."""


def _read(stack: CallStack, at: int, view: ProcessView) -> SeenWait | None:
    pool = variables_of(stack.frames[at]).get("self")
    waits = frame_named(stack, "Condition.wait", at) is not None  # otherwise it is connecting
    library = next((one for one in _PARTS if has_type(pool, f"{one}.pool", "Pool")), None)
    if stack.task is None or not waits or library is None:
        return None
    used, free, acquiring = read(pool, "_used"), read(pool, "_free"), number(read(pool, "_acquiring"))
    if type(used) is not set or free is UNKNOWN or acquiring != 0 or read(pool, "_closing") is not False:
        return None
    most = getattr(free, "maxlen", None)
    if len(free) or not most or len(used) < most:
        return None
    things = list(used)
    taken = set(map(id, things))
    state = PoolState(
        pool=pool,
        name=f"an {library} pool",
        taken=len(taken),
        share_of=lambda thing: thing if id(thing) in taken else None,
        closers=(pool,),
        lines=(read(pool, "_cond"),),
        lost=lambda: sum(
            has_no_other_references(things, index, (used, *library_parts(things[index], _PARTS[library], pool)))
            for index in range(len(things))
        ),
    )
    return wait_for_share(state, view)


RESOLVERS = (Resolver(tuple((f"{library}/pool.py", "Pool._acquire") for library in _PARTS), _read),)
