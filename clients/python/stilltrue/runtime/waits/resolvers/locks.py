"""Waits for ``threading`` and ``asyncio`` locks and semaphores that the application has made itself.

Rules:

1. A lock's holder is found from the position of threads and tasks (:mod:`~stilltrue.runtime.waits.holders.held_locks`). An
   ``RLock`` knows its owner. A lock acquired in any other way has no known holder, so a wait for it does not count.
2. For a bounded semaphore, the holders of all its shares must be known. The size of an unbounded one is unknown: for that, and
   for one that has lost shares, it must be proved that only the parties inside have a share
   (:mod:`~stilltrue.runtime.waits.orphaned_locks`). Then only they can release one.
3. A wait with a timeout does not count here, unless a loop repeats it (:mod:`~stilltrue.runtime.waits.resolvers.polled_ends`).
4. Any party may release a lock or semaphore that another holds, and another party may then hold it unseen, so that the apparent
   holder is wrong. The second look searches for the parties that can reach it and whose code mentions releasing it.
5. An ``RLock`` whose thread has ended is never released. For any other lock or semaphore without a known holder, that must be
   proved (:mod:`~stilltrue.runtime.waits.orphaned_locks`).
6. Any party may close an ``ExitStack`` through which a holder entered a lock or semaphore, which releases it.
"""

from __future__ import annotations

import asyncio
import re
import threading
from collections import deque
from collections.abc import Sequence
from types import FrameType
from typing import Any

from stilltrue.runtime import compat
from stilltrue.runtime.introspection.frames import innermost_frames, variables_of
from stilltrue.runtime.introspection.origins import is_of_anyios_semaphore
from stilltrue.runtime.look.code.attributes import UNKNOWN, attribute_of
from stilltrue.runtime.own_ref import OwnRef
from stilltrue.runtime.waits.holders.exit_stacks import entered_through_stack
from stilltrue.runtime.waits.holders.with_blocks import EXITS, acquired_at
from stilltrue.runtime.waits.wait import CallStack, EndedHolder, Ender, ProcessView, Resolver, SeenWait

LOCK = type(threading.Lock())
_RLOCK = type(threading.RLock())
LOCKS = (LOCK, _RLOCK, asyncio.Lock, threading.Lock, threading.RLock)
_CONDITIONS = (threading.Condition, asyncio.Condition)
_SEMAPHORES = (threading.Semaphore, asyncio.Semaphore, threading.BoundedSemaphore, asyncio.BoundedSemaphore)
_ANYIO = frozenset({"anyio._backends._asyncio", "anyio._core._synchronization"})
LOCKS_AND_SEMAPHORES = (LOCK, _RLOCK, threading.Semaphore, threading.BoundedSemaphore)
_BOUNDED: dict[type, str] = {threading.BoundedSemaphore: "_initial_value", asyncio.BoundedSemaphore: "_bound_value"}
MANAGERS = "multiprocessing.managers"
_AWAITED = (asyncio.Lock, asyncio.BoundedSemaphore, asyncio.Semaphore)
RELEASES = frozenset({"release", "release_lock"})
RELEASING = frozenset({"_release_save", "_at_fork_reinit", "enter_context", "unlock"}) | RELEASES | EXITS
_OWNER = re.compile(r"owner=(\d+)")
_LEFT = "what {} never released"
_ENDED_MAX = 1_000
_ended_owners: dict[int, tuple[OwnRef, int]] = {}
"""Ended owners of locks, by identity of the lock."""
WAITS = frozenset({id(threading.Condition.wait.__code__), id(asyncio.Condition.wait.__code__)})


def _read_acquired(stack: CallStack, _: int, view: ProcessView) -> SeenWait | None:
    """A thread that is about to acquire a lock, or blocked in acquiring it."""
    return None if stack.task is not None else _of_lock(lock_acquired(stack.frames), stack, view)


def lock_acquired(frames: Sequence[FrameType]) -> Any:
    """The lock that a thread with these frames is about to acquire, or blocked in acquiring; None if there is none."""
    if id(frames[0].f_code) in WAITS or any(one.f_code is compat.THREAD_START for one in frames[:4]):
        return None  # there it waits to be notified
    lock = lock_of(acquired_at(frames[0]))
    lock = lock_of(entered_through_stack(frames[0])) if lock is None else lock
    return lock if type(lock) in (LOCK, _RLOCK) else None


def _read_condition(stack: CallStack, at: int, view: ProcessView) -> SeenWait | None:
    """A thread that enters the block of a condition."""
    return _of_lock(lock_of(variables_of(stack.frames[0]).get("self")), stack, view) if at == 0 else None


def _read_task(stack: CallStack, at: int, view: ProcessView) -> SeenWait | None:
    """A task that waits for an asyncio lock or semaphore."""
    names = variables_of(stack.frames[at])
    if stack.task is None or at != 0 or names.get("fut") is not stack.future:
        return None
    lock = names.get("self")
    if type(lock) is asyncio.Lock:
        return _of_lock(lock, stack, view)
    return _of_semaphore(lock, stack, view)


def _read_semaphore(stack: CallStack, at: int, view: ProcessView) -> SeenWait | None:
    """A thread that waits for a share of a semaphore."""
    names = variables_of(stack.frames[at])
    if at != 1 or id(stack.frames[0].f_code) not in WAITS or names.get("timeout", 0) is not None:
        return None
    return _of_semaphore(names.get("self"), stack, view)


def wait_for_lock(thing: Any, stack: CallStack, view: ProcessView) -> SeenWait | None:
    """The wait of the thread with this stack for a lock or a share of a semaphore of :mod:`threading`."""
    return _of_lock(thing, stack, view) if type(thing) in (LOCK, _RLOCK) else _of_semaphore(thing, stack, view)


def _of_lock(lock: Any, stack: CallStack, view: ProcessView) -> SeenWait | None:
    if type(lock) not in (LOCK, _RLOCK, asyncio.Lock):
        return None
    if type(lock) is _RLOCK:
        owner = _owner_of(lock)
        if is_left_by(lock, owner):
            return SeenWait(on=lock, enders=(EndedHolder(f"the holder of {_named(lock)}"),), what=_LEFT)
        holders: tuple[Ender, ...] = (owner,) if owner not in (0, stack.ident) else ()
        tasks = tuple(one for one in view.inside(lock) if isinstance(one, asyncio.Task))
        holders = tasks if holders and tasks else holders  # the owner is the thread of the task's loop
    else:
        holders = tuple(view.inside(lock)) if lock.locked() else ()
    if not holders and type(lock) is not _RLOCK and lock.locked() and view.has_no_other_holders(lock, stack):
        return _left(lock)
    known = holders if len(holders) == 1 else None
    shares = _left_early(lock, view)
    return SeenWait(
        on=lock, enders=known, what="a lock that {} holds", ended_through=(lock,), ending_names=RELEASING, shares=shares
    )


def _of_semaphore(semaphore: Any, stack: CallStack, view: ProcessView) -> SeenWait | None:
    if not _is_semaphore(semaphore) or attribute_of(semaphore, "_value") != 0:
        return None
    holders = view.inside(semaphore)
    attribute = "_max_value" if is_anyios_semaphore(semaphore) else _BOUNDED.get(type(semaphore))
    shares = UNKNOWN if attribute is None else attribute_of(semaphore, attribute)
    if len(holders) != shares and (not _is_handed_over(semaphore, view) and view.has_no_other_holders(semaphore, stack)):
        if not holders:
            return _left(semaphore)
        shares = len(holders)
    if not holders and not isinstance(shares, int):
        return None
    known = tuple(dict.fromkeys(holders)) if len(holders) == shares else None
    what = "a share of a semaphore, all of which are held by {}"
    kept = _left_early(semaphore, view)
    return SeenWait(on=semaphore, enders=known, what=what, ended_through=(semaphore,), ending_names=RELEASING, shares=kept)


def _is_handed_over(semaphore: Any, view: ProcessView) -> bool:
    """Whether a share has been handed to a waiter that has yet to run. Of anyio's, such a one is no waiter any more."""
    if is_anyios_semaphore(semaphore):
        return id(semaphore) in view.cached(_is_handed_over, lambda: _handed_over_by_anyio(view))
    waiters = attribute_of(semaphore, "_waiters")
    return type(waiters) is deque and any(one.done() for one in tuple(waiters))


def _handed_over_by_anyio(view: ProcessView) -> frozenset[int]:
    """The semaphores of which a task has got a share that has yet to run."""
    inner = (stack.frames[0] for stack in view.stacks_of_tasks().values() if stack.frames)
    waiting = [variables_of(frame) for frame in inner if is_of_anyios_semaphore(frame.f_code)]
    return frozenset(
        id(names.get("self")) for names in waiting if isinstance(fut := names.get("fut"), asyncio.Future) and fut.done()
    )


def _left_early(thing: Any, view: ProcessView) -> tuple[Any, ...]:
    """Rule 6."""
    stacks = view.exit_stacks(thing)
    return (thing, *stacks) if stacks else ()


def _left(thing: Any) -> SeenWait:
    """Rule 5."""
    gone = (EndedHolder(f"the holder of {_named(thing)}"),)
    return SeenWait(on=thing, enders=gone, what=_LEFT, shares=(thing,), ended_through=(thing,), ending_names=RELEASING)


def _named(thing: Any) -> str:
    return f"a {type(thing).__name__} ({id(thing):x})"


def is_exhausted(thing: Any) -> bool:
    """Whether a lock, or all shares of a semaphore, are held."""
    return attribute_of(thing, "_value") == 0 if _is_semaphore(thing) else bool(thing.locked())


def _owner_of(lock: Any) -> int:
    """The identity of the thread that holds an ``RLock``; 0 if none does."""
    owner = _OWNER.search(repr(lock))
    return int(owner[1]) if owner else 0


def is_left_by(lock: Any, owner: int) -> bool:
    """Whether the thread with this identity, which holds an ``RLock``, has ended: no other thread can release the lock.

    A later thread may get the same identity, but it does not release a lock that it has not acquired.
    """
    known = _ended_owners.get(id(lock))
    if not owner:
        _ended_owners.pop(id(lock), None)
        return False
    if known is not None and known[0]() is lock and known[1] == owner:
        return True
    if _lives(owner) or _owner_of(lock) != owner or _lives(owner):  # a new thread may have got the same identity meanwhile
        _ended_owners.pop(id(lock), None)
        return False
    if len(_ended_owners) >= _ENDED_MAX:
        _ended_owners.clear()
    _ended_owners[id(lock)] = (OwnRef(lock), owner)
    return True


def _lives(ident: int) -> bool:
    return ident in innermost_frames() or ident in compat.threads()


def lock_of(thing: Any) -> Any:
    """The lock of a condition, a lock or semaphore itself, or None for anything else."""
    if issubclass(type(thing), _CONDITIONS):
        thing = attribute_of(thing, "_lock")
    elif is_anyios_adapter(thing):
        thing = attribute_of(thing, "_internal_semaphore")
    known = type(thing) in (LOCK, _RLOCK, asyncio.Lock) or _is_semaphore(thing)
    return thing if known or is_shared_lock(thing) or is_manager_lock(thing) else None


def is_awaited(lock: Any) -> bool:
    """Whether tasks await a lock or semaphore, as opposed to threads that block."""
    return type(lock) in _AWAITED or is_anyios_semaphore(lock)


def _is_semaphore(thing: Any) -> bool:
    return type(thing) in _SEMAPHORES or is_anyios_semaphore(thing)


def is_anyios_semaphore(thing: Any) -> bool:
    """Whether it is a semaphore of anyio's on a loop of asyncio's."""
    return type(thing).__name__ == "Semaphore" and compat.module_of(type(thing)) in _ANYIO


def is_anyios_adapter(thing: Any) -> bool:
    """Whether it stands for a semaphore of anyio's: one that was made where no loop ran."""
    return type(thing).__name__ == "SemaphoreAdapter" and compat.module_of(type(thing)) in _ANYIO


def is_shared_lock(thing: Any) -> bool:
    """Whether it is one of multiprocessing's locks, which other processes may have, too."""
    kind = type(thing)
    return kind.__module__ == "multiprocessing.synchronize" and kind.__name__ in ("Lock", "RLock")


def is_manager_lock(thing: Any) -> bool:
    """Whether it stands for a lock of a manager of multiprocessing, which other processes may have, too."""
    kind = type(thing)
    if kind.__module__ != MANAGERS or kind.__name__ != "AcquirerProxy":
        return False
    return attribute_of(attribute_of(thing, "_token"), "typeid") in ("Lock", "RLock")


RESOLVERS = (
    Resolver((("threading.py", "Condition.__enter__"),), _read_condition),
    Resolver((("threading.py", "Semaphore.acquire"),), _read_semaphore),
    Resolver((("asyncio/locks.py", "Lock.acquire"), ("asyncio/locks.py", "Semaphore.acquire")), _read_task),
    Resolver((("anyio/_backends/_asyncio.py", "Semaphore.acquire"),), _read_task),
    Resolver((), _read_acquired),
)
