"""Waits for a share of a pool: the threads and tasks whose frames refer to a taken share can end them.

Rules:

1. The pool knows how many shares are taken. The holders are known only if that many are found in the frames of threads and
   tasks; then one of these must act. A share in no frame may be released at any moment: by a registry, a callback, the garbage
   collector.
2. The release of any share may end any of the waits: so each waits for one of all holders.
3. A share to which only the pool refers will not be released: its holder has ended. Libraries whose shares are released by the
   garbage collector, or recovered in any other way, have no such shares.
4. Any other party that refers to a share, as the second look finds, may release it, whatever its code mentions.
5. Data in a form other than that of the library's known versions is unknown.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from types import FrameType
from typing import Any, cast

from stilltrue.runtime import compat
from stilltrue.runtime.bytecode.qualified_names import qualname_of
from stilltrue.runtime.introspection.frames import variables_of
from stilltrue.runtime.look.code.attributes import UNKNOWN, attribute_of
from stilltrue.runtime.waits.wait import CallStack, EndedHolder, Ender, ProcessView, SeenWait

_KINDS_MAX = 4_096
_FAR = (8, 40, 150)


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolState:
    """A pool with a party that waits for one of its shares.

    ``taken``: the number of taken shares; ``share_of`` returns the share that an object stands for, or None. ``until``: when
    the wait ends by itself (epoch). ``closers``: closing one of these ends the wait; ``lines``: as in :class:`SeenWait`;
    ``helpers``: the pool's own threads and tasks. ``around``: classes (module and name) of objects that lead to no share or to
    all of them; ``kinds``: the only classes whose objects can stand for a share (empty: any class). ``lost`` counts the taken
    shares that can no longer be released (:mod:`~stilltrue.runtime.waits.pools.lost_shares`). ``what`` describes the wait as
    in :class:`SeenWait`.
    """

    pool: Any
    name: str
    taken: int
    share_of: Callable[[Any], Any]
    until: float | None = None
    closers: tuple[Any, ...] = ()
    lines: tuple[Any, ...] = ()
    helpers: tuple[Ender, ...] = ()
    around: tuple[tuple[str, str], ...] = ()
    kinds: tuple[tuple[str, str], ...] = ()
    lost: Callable[[], int] = int
    what: str = ""


def wait_for_share(state: PoolState, view: ProcessView) -> SeenWait:
    """A wait for a share of this pool (rules 1 and 2)."""
    holders, shares = view.cached(id(state.pool), lambda: _holders(state, view))
    lost = state.lost() if state.until is None and len(holders) < state.taken else 0
    known = len(holders) + lost == state.taken > 0
    left = (EndedHolder(f"{lost} of the holders of connections of {state.name} ({id(state.pool):x})"),) if lost else ()
    enders = (*dict.fromkeys(one for who in holders.values() for one in who), *left) if known else None
    return SeenWait(
        on=state.pool,
        enders=enders,
        until=state.until,
        what=state.what or f"a connection of {state.name}, all {state.taken} of which are held by {{}}",
        owners=state.closers,
        lines=state.lines if known else (),
        helpers=state.helpers,
        shares=(state.pool, *shares) if known else (),
    )


def _holders(state: PoolState, view: ProcessView) -> tuple[dict[int, set[Ender]], tuple[Any, ...]]:
    """The threads and tasks whose frames refer to each share, and the objects through which the shares can be released.

    Searches nearby objects first: the second look, which has more time, searches for further holders.
    """
    holders: dict[int, set[Ender]] = {}
    objects: dict[int, Any] = {}

    kinds: dict[type, bool | None] = {}

    def wanted(thing: Any) -> bool:
        kind = type(thing)
        if kind not in kinds:
            bears = not state.kinds or any(has_type(thing, *one) for one in state.kinds)
            kinds[kind] = True if any(has_type(thing, *one) for one in state.around) else None if bears else False
        found = kinds[kind]
        return thing is state.pool or (state.share_of(thing) is not None if found is None else found)

    for far in _FAR:
        for thing, who in view.find(wanted, far):
            share = state.share_of(thing)
            if share is not None:
                objects[id(thing)] = thing
                holders.setdefault(id(share), set()).update(who)
        if len(holders) >= state.taken:
            break
    return holders, tuple(objects.values())


def has_type(thing: Any, module: str, name: str) -> bool:
    """Whether an object's class, or a base of it, has this name. Imports nothing."""
    return name in _names_of(cast("Hashable", type(thing))).get(module, ())


@functools.lru_cache(maxsize=_KINDS_MAX)
def _names_of(kind: Any) -> dict[str, frozenset[str]]:
    """The names of a class and its bases, by module."""
    found: dict[str, frozenset[str]] = {}
    for one in kind.__mro__:
        module = compat.module_of(one)
        found[module] = found.get(module, frozenset()) | {one.__name__}
    return found


def read(thing: Any, *path: str) -> Any:
    """The attribute at this path, without running code; :data:`UNKNOWN` if one is missing."""
    for name in path:
        thing = UNKNOWN if thing is UNKNOWN else attribute_of(thing, name)
    return thing


def number(thing: Any) -> int | None:
    """An integer, or None."""
    return thing if type(thing) is int else None


def frame_named(stack: CallStack, name: str, below: int) -> FrameType | None:
    """The innermost frame of the function with this name, among those inside the frame with index ``below``."""
    return next((frame for frame in stack.frames[:below] if qualname_of(frame.f_code) == name), None)


def deadline_of_queue(stack: CallStack, below: int, now: Callable[[float], float]) -> tuple[bool, float | None]:
    """Whether a thread is blocked in a queue's ``get``, and when that times out; ``now`` converts ``endtime`` to epoch time."""
    frame = frame_named(stack, "Queue.get", below)
    if frame is None:
        return False, None
    names = variables_of(frame)
    if names.get("block", names.get("timeout")) is False:
        return False, None
    if names.get("timeout") is None:
        return True, None
    endtime = names.get("endtime")
    return (True, now(endtime)) if isinstance(endtime, float) else (False, None)
