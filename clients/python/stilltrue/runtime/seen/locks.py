"""Waits for locks and bounded semaphores that the application has made itself, of ``threading`` and of ``asyncio``.

Rules:

1. A lock is held by the thread or task that stands inside its ``with`` block (or that of a condition made of it), or between
   its ``acquire()`` and the ``finally`` that releases it (:mod:`~stilltrue.runtime.seen.brackets`). An
   ``RLock`` knows its owner. Any other is held by nobody known, so a wait for it counts as none. In a suspended coroutine,
   what it holds says which blocks it is in.
2. Whoever stands in a block has given the lock back meanwhile if it waits for the condition; and may have, if somebody waits
   for it who does not stand in a block (``wait_for(condition.wait(), t)`` is a task of its own), or if its code, or that of
   the functions it has called there, speaks of releasing anything that this code has not taken itself.
3. Of a bounded semaphore as many holders must be known as there are shares. The size of any other is unknown.
4. With a timeout it is no wait here.
5. Anybody may release a lock or semaphore that another has, and who releases it elsewhere may have it there, so that it is not
   with whom it seems to be. The second look searches for those who come by it and speak of that.
"""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Iterable, Sequence
from types import BuiltinMethodType, FrameType, MethodType
from typing import Any

from stilltrue.runtime import compat
from stilltrue.runtime.introspection.frames import variables_of
from stilltrue.runtime.introspection.origins import is_application
from stilltrue.runtime.look.code.attributes import UNKNOWN, attribute_of
from stilltrue.runtime.look.code.names import spoken_in
from stilltrue.runtime.seen.blocks import blocks_of, depth_of, taken_at
from stilltrue.runtime.seen.brackets import gives_back_only_its_own, may_take_bare, taken_bare
from stilltrue.runtime.seen.wait import Ender, Resolver, Scene, SeenWait, Stand

_LOCK = type(threading.Lock())
_RLOCK = type(threading.RLock())
_CONDITIONS = (threading.Condition, asyncio.Condition)
_BOUNDED = {threading.BoundedSemaphore: "_initial_value", asyncio.BoundedSemaphore: "_bound_value"}
_AWAITED = (asyncio.Lock, asyncio.BoundedSemaphore)
_RELEASING = frozenset({"release", "_release_save", "enter_context", "unlock"})
_EXITS = frozenset({"__exit__", "__aexit__"})
_OWNER = re.compile(r"owner=(\d+)")
_WAITS = frozenset({id(threading.Condition.wait.__code__), id(asyncio.Condition.wait.__code__)})


def _read_taken(stand: Stand, _: int, scene: Scene) -> SeenWait | None:
    """A thread that is about to take a lock, or blocked in that."""
    return None if stand.task is not None else _of_lock(lock_taken(stand.frames), stand, scene)


def lock_taken(frames: Sequence[FrameType]) -> Any:
    """The lock that a thread with these frames is about to take, or blocked in taking; None if there is none."""
    if id(frames[0].f_code) in _WAITS or any(one.f_code is compat.THREAD_START for one in frames[:4]):
        return None  # what it waits for there is to be woken
    lock = _lock_of(taken_at(frames[0]))
    return lock if type(lock) in (_LOCK, _RLOCK) else None


def _read_condition(stand: Stand, at: int, scene: Scene) -> SeenWait | None:
    """A thread that enters the block of a condition."""
    return _of_lock(_lock_of(variables_of(stand.frames[0]).get("self")), stand, scene) if at == 0 else None


def _read_task(stand: Stand, at: int, scene: Scene) -> SeenWait | None:
    """A task that waits for a lock of asyncio's."""
    names = variables_of(stand.frames[at])
    if stand.task is None or at != 0 or names.get("fut") is not stand.future:
        return None
    lock = names.get("self")
    if type(lock) is asyncio.Lock:
        return _of_lock(lock, stand, scene)
    return _of_bounded(lock, scene)


def _read_semaphore(stand: Stand, at: int, scene: Scene) -> SeenWait | None:
    """A thread that waits for a share of a semaphore."""
    names = variables_of(stand.frames[at])
    if at != 1 or id(stand.frames[0].f_code) not in _WAITS or names.get("timeout", 0) is not None:
        return None
    return _of_bounded(names.get("self"), scene)


def _of_lock(lock: Any, stand: Stand, scene: Scene) -> SeenWait | None:
    if type(lock) not in (_LOCK, _RLOCK, asyncio.Lock):
        return None
    if type(lock) is _RLOCK:
        owner = _OWNER.search(repr(lock))
        holders: tuple[Ender, ...] = (int(owner[1]),) if owner and int(owner[1]) not in (0, stand.ident) else ()
        tasks = tuple(one for one in scene.inside(lock) if isinstance(one, asyncio.Task))
        holders = tasks if holders and tasks else holders  # it is its loop's thread that owns it
    else:
        holders = tuple(scene.inside(lock)) if lock.locked() else ()
    known = holders if len(holders) == 1 else None
    return SeenWait(on=lock, enders=known, what="a lock that {} holds", undone=(lock,), by=_RELEASING)


def _of_bounded(semaphore: Any, scene: Scene) -> SeenWait | None:
    attribute = _BOUNDED.get(type(semaphore))
    shares = UNKNOWN if attribute is None else attribute_of(semaphore, attribute)
    if not isinstance(shares, int) or attribute_of(semaphore, "_value") != 0:
        return None
    holders = scene.inside(semaphore)
    known = tuple(dict.fromkeys(holders)) if len(holders) == shares else None
    what = "a share of a semaphore, all of which {} have"
    return SeenWait(on=semaphore, enders=known, what=what, undone=(semaphore,), by=_RELEASING)


def held_by(stand: Stand) -> tuple[list[Any], list[Any]]:
    """The locks and semaphores in whose blocks somebody stands who still has them, and those given back elsewhere (rule 2)."""
    held: list[Any] = []
    entered: list[Any] = []
    waited = [_lock_of(variables_of(frame).get("self")) for frame in stand.frames if id(frame.f_code) in _WAITS]
    gives_back = False
    for index, frame in enumerate(stand.frames):
        gives_back = gives_back or _gives_back(frame)
        inside = map(_lock_of, _of_coroutine(stand, index) if stand.coroutines else blocks_of(frame))
        bare = _taken_bare(frame) if may_take_bare(frame.f_code) else ()
        known = [lock for lock in (*inside, *bare) if lock is not None]
        entered += known
        held += [] if gives_back else [lock for lock in known if not any(lock is other for other in waited)]
    return held, [lock for lock in waited if lock is not None and not any(lock is other for other in entered)]


def _of_coroutine(stand: Stand, index: int) -> Iterable[Any]:
    """What the blocks are for in which a suspended coroutine stands: it holds how they are left."""
    depth = depth_of(stand.frames[index])
    held = compat.names_in(stand.coroutines[index]) if depth else ()
    ends = [one.__self__ for one in held if type(one) in (MethodType, BuiltinMethodType) and one.__name__ in _EXITS]
    return ends[:depth]  # the outermost first; the last may be one that it is about to enter


def _gives_back(frame: FrameType) -> bool:
    """Whether a function may have given a lock back that it has, or that its callers have."""
    code = frame.f_code
    return is_application(code) and "release" in spoken_in(code) and not gives_back_only_its_own(code)


def _taken_bare(frame: FrameType) -> Iterable[Any]:
    """The locks that a frame has taken without a block, and is bound to give back."""
    for value, awaited in taken_bare(frame):
        lock = _lock_of(value)
        if awaited == (type(lock) in _AWAITED):
            yield lock


def _lock_of(thing: Any) -> Any:
    """The lock of a condition; a lock or semaphore itself; None for anything else."""
    if issubclass(type(thing), _CONDITIONS):
        thing = attribute_of(thing, "_lock")
    return thing if type(thing) in (_LOCK, _RLOCK, asyncio.Lock, *_BOUNDED) else None


RESOLVERS = (
    Resolver((("threading.py", "Condition.__enter__"),), _read_condition),
    Resolver((("threading.py", "Semaphore.acquire"),), _read_semaphore),
    Resolver((("asyncio/locks.py", "Lock.acquire"), ("asyncio/locks.py", "Semaphore.acquire")), _read_task),
    Resolver((), _read_taken),
)
