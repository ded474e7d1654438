"""The ``Pool`` of aiopg and of aiomysql.

Rules:

1. A wait for a connection has no timeout.
2. ``wait_closed()`` waits until all connections are released, by whoever has them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from stilltrue.runtime.introspection.frames import variables_of
from stilltrue.runtime.look.code.attributes import UNKNOWN
from stilltrue.runtime.waits.pools.lost_shares import has_no_other_references, library_parts
from stilltrue.runtime.waits.pools.shares import PoolState, frame_named, has_type, number, read, wait_for_share
from stilltrue.runtime.waits.wait import CallStack, ProcessView, Resolver, SeenWait

_PARTS = {name: (f"{name}.connection", f"{name}.utils") for name in ("aiopg", "aiomysql")}
"""By library, the modules of a connection's parts."""


def _read(stack: CallStack, at: int, view: ProcessView) -> SeenWait | None:
    """Rule 1."""
    pool = variables_of(stack.frames[at]).get("self")
    free, state = read(pool, "_free"), _state(pool, stack, at, closing=False)
    most = getattr(free, "maxlen", None)
    if state is None or free is UNKNOWN or len(free) or not most or state.taken < most:
        return None
    return wait_for_share(state, view)


def _read_close(stack: CallStack, at: int, view: ProcessView) -> SeenWait | None:
    """Rule 2."""
    state = _state(variables_of(stack.frames[at]).get("self"), stack, at, closing=True)
    if state is None:
        return None
    what = f"the release of all connections of {state.name} that is being closed, which are held by {{}}"
    return replace(wait_for_share(state, view), what=what, needs=None)


def _state(pool: Any, stack: CallStack, at: int, *, closing: bool) -> PoolState | None:
    """The pool for whose condition this task waits, if it is ``closing`` or not; None if the task does something else."""
    waits = frame_named(stack, "Condition.wait", at) is not None  # otherwise it is connecting
    library = next((one for one in _PARTS if has_type(pool, f"{one}.pool", "Pool")), None)
    if stack.task is None or not waits or library is None:
        return None
    used, acquiring = read(pool, "_used"), number(read(pool, "_acquiring"))
    if type(used) is not set or acquiring != 0 or read(pool, "_closing") is not closing:
        return None
    things = list(used)
    taken = set(map(id, things))
    return PoolState(
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


RESOLVERS = (
    Resolver(tuple((f"{library}/pool.py", "Pool._acquire") for library in _PARTS), _read),
    Resolver(tuple((f"{library}/pool.py", "Pool.wait_closed") for library in _PARTS), _read_close),
)
