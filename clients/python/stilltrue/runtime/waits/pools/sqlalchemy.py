"""SQLAlchemy's ``QueuePool``, and the pool of its asynchronous engines.

The garbage collector returns an unreferenced connection, so a share without a holder is unknown. So is a share to which only
a scoped session's registry refers.
"""

from __future__ import annotations

from types import FrameType
from typing import Any
from weakref import ref

from stilltrue.runtime.bytecode.qualified_names import qualname_of
from stilltrue.runtime.introspection.frames import caller_of, variables_of
from stilltrue.runtime.look.code.attributes import UNKNOWN
from stilltrue.runtime.waits.pools.shares import PoolState, deadline_of_queue, has_type, number, read, wait_for_share
from stilltrue.runtime.waits.wait import CallStack, ProcessView, Resolver, SeenWait

_BASE = "sqlalchemy.pool.base"
_AROUND = (
    ("sqlalchemy.engine.base", "Engine"),
    ("sqlalchemy.engine.interfaces", "Dialect"),
    ("sqlalchemy.ext.asyncio.engine", "AsyncEngine"),
    ("sqlalchemy.pool.base", "Pool"),
)
_GREENLET_FRAMES_MAX = 30


def _read(stack: CallStack, at: int, view: ProcessView) -> SeenWait | None:
    if stack.task is not None:
        return None
    pool = variables_of(stack.frames[at]).get("self")
    waits, until = deadline_of_queue(stack, at, lambda endtime: endtime)  # SQLAlchemy's queue uses epoch time
    return _wait(pool, until, view) if waits else None


def _read_of_task(stack: CallStack, at: int, view: ProcessView) -> SeenWait | None:
    """A task whose greenlet, which runs SQLAlchemy's synchronous code, is in the queue's ``get``."""
    greenlet = variables_of(stack.frames[at]).get("context")
    inner: FrameType | None = getattr(greenlet, "gr_frame", None) if has_type(greenlet, "greenlet", "greenlet") else None
    names: list[str] = []
    for _ in range(_GREENLET_FRAMES_MAX):
        if inner is None:
            return None
        if qualname_of(inner.f_code) == "QueuePool._do_get":
            break
        names.append(qualname_of(inner.f_code))
        inner = caller_of(inner)
    if inner is None or "AsyncAdaptedQueue.get" not in names:
        return None
    return _wait(variables_of(inner).get("self"), None, view)  # a timeout is a timer of the loop


def _wait(pool: Any, until: float | None, view: ProcessView) -> SeenWait | None:
    if not has_type(pool, "sqlalchemy.pool.impl", "QueuePool"):
        return None
    taken = _taken(pool)
    if taken is None:
        return None
    return wait_for_share(
        PoolState(
            pool=pool,
            name="a SQLAlchemy pool",
            taken=taken,
            share_of=lambda thing: _share_of(thing, pool),
            until=until,
            around=_AROUND,
            kinds=((_BASE, "_ConnectionFairy"),),
        ),
        view,
    )


def _taken(pool: Any) -> int | None:
    """The number of taken connections if the pool is full; None if not, or if unknown."""
    waiting = read(pool, "_pool", "queue")
    if waiting is UNKNOWN:
        waiting = read(pool, "_pool", "_queue", "_queue")
    size, overflow, overflow_max = (
        number(read(pool, *path)) for path in (("_pool", "maxsize"), ("_overflow",), ("_max_overflow",))
    )
    if waiting is UNKNOWN or size is None or overflow is None or overflow_max is None:
        return None
    free = len(waiting)
    return size + overflow if free == 0 and size > 0 and overflow >= overflow_max > -1 else None


def _share_of(thing: Any, pool: Any) -> Any:
    if not has_type(thing, _BASE, "_ConnectionFairy") or read(thing, "_pool") is not pool:
        return None
    record = read(thing, "_connection_record")
    weak = read(record, "fairy_ref") if record is not None else UNKNOWN
    return record if isinstance(weak, ref) and weak() is thing else None


RESOLVERS = (
    Resolver((("sqlalchemy/pool/impl.py", "QueuePool._do_get"),), _read),
    Resolver(
        (("sqlalchemy/util/concurrency.py", "greenlet_spawn"), ("sqlalchemy/util/_concurrency_py3k.py", "greenlet_spawn")),
        _read_of_task,
    ),
)
