"""Who can end a wait for a share of a pool: everybody in whose frames one of the shares that are taken is found.

Rules:

1. The pool says how many shares are taken. Only if exactly so many are found in the frames of threads and tasks is it known who
   can give one back; then one of these must act. A share that nobody's frames hold may come back at any moment: a registry, a
   callback, the garbage collector.
2. The wait ends when any share is given back, whoever waited first: so it waits for one of all who have a share.
3. A share to which nothing refers but the pool itself will not be given back: who took it has ended. A library that lets the
   garbage collector give back a share, or takes a share back in any other way, has no such share.
4. Whoever else holds one of the shares, as the second look finds, may give it back, whatever its code says.
5. What is not as this library's version is known to keep it is unknown.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from types import FrameType
from typing import Any, cast

from stilltrue.runtime import compat
from stilltrue.runtime.introspection.frames import variables_of
from stilltrue.runtime.look.code.attributes import UNKNOWN, attribute_of
from stilltrue.runtime.seen.wait import CallStack, EndedHolder, Ender, Scene, SeenWait

_KINDS_MAX = 4_096
_FAR = (8, 40, 150)


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolState:
    """A pool for one of whose shares somebody waits.

    ``taken`` are its shares that are not free; ``share_of`` tells which share of it an object stands for (None: none).
    ``until``: when (epoch) the wait ends by itself. ``closers``: what ends the wait when it is closed; ``helpers``: the
    pool's own threads and tasks. ``around``: the classes (module and name) of objects that lead to no share, or to all;
    ``kinds``: the only classes of those for which ``share_of`` must be asked (empty: all). ``lost`` counts the taken shares
    that nobody can give back any more (:mod:`~stilltrue.runtime.seen.pools.lost`).
    """

    pool: Any
    name: str
    taken: int
    share_of: Callable[[Any], Any]
    until: float | None = None
    closers: tuple[Any, ...] = ()
    helpers: tuple[Ender, ...] = ()
    around: tuple[tuple[str, str], ...] = ()
    kinds: tuple[tuple[str, str], ...] = ()
    lost: Callable[[], int] = int


def wait_for_share(state: PoolState, scene: Scene) -> SeenWait:
    """The wait of somebody for a share of this pool (rules 1 and 2)."""
    holders, shares = scene.once(id(state.pool), lambda: _holders(state, scene))
    lost = state.lost() if state.until is None and len(holders) < state.taken else 0
    known = len(holders) + lost == state.taken > 0
    left = (EndedHolder(f"{lost} of the holders of connections of {state.name} ({id(state.pool):x})"),) if lost else ()
    enders = (*dict.fromkeys(one for who in holders.values() for one in who), *left) if known else None
    return SeenWait(
        on=state.pool,
        enders=enders,
        until=state.until,
        what=f"a connection of {state.name}; all {state.taken} are taken, by {{}}",
        owners=state.closers,
        helpers=state.helpers,
        shares=(state.pool, *shares) if known else (),
    )


def _holders(state: PoolState, scene: Scene) -> tuple[dict[int, set[Ender]], tuple[Any, ...]]:
    """By share, in whose frames it is found; and the objects by which it can be given back.

    It is looked for nearby first: the second look searches for further holders, and has more time.
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
        for thing, who in scene.found(wanted, far):
            share = state.share_of(thing)
            if share is not None:
                objects[id(thing)] = thing
                holders.setdefault(id(share), set()).update(who)
        if len(holders) >= state.taken:
            break
    return holders, tuple(objects.values())


def has_type(thing: Any, module: str, name: str) -> bool:
    """Whether an object is of this class, or of a subclass: no library is imported to know that."""
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
    """The attribute of an attribute and so on, without running code; :data:`UNKNOWN` if one of them is missing."""
    for name in path:
        thing = UNKNOWN if thing is UNKNOWN else attribute_of(thing, name)
    return thing


def number(thing: Any) -> int | None:
    """An integer, or None."""
    return thing if type(thing) is int else None


def frame_named(stack: CallStack, name: str, below: int) -> FrameType | None:
    """The innermost frame of a function of this name, of those inside the one with index ``below``."""
    return next((frame for frame in stack.frames[:below] if frame.f_code.co_qualname == name), None)


def deadline_of_queue(stack: CallStack, below: int, now: Callable[[float], float]) -> tuple[bool, float | None]:
    """Whether a thread stands in a queue's ``get``, and when that gives up: ``endtime`` as ``now`` turns it into epoch time."""
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
