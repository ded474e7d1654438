"""Finds the locks and semaphores that a thread or task holds, by its position.

Rules:

1. A party inside a ``with`` block of a lock holds it; so does one in a block of a condition made of it, or of an object whose
   class acquires it on entry (:mod:`~stilltrue.runtime.waits.holders.context_managers`). If a suspended function under
   ``contextmanager`` holds the lock, so does the party in the block of the object that the function made, if no other party can
   resume the function. A party in the block of an ``ExitStack`` holds what was entered through it
   (:mod:`~stilltrue.runtime.waits.holders.exit_stacks`). A party that loops over a suspended generator holds what the generator
   holds, if no other party has that generator (:mod:`~stilltrue.runtime.waits.holders.loops_over_generators`).
2. A party between ``acquire()`` and the ``finally`` that releases the lock holds it
   (:mod:`~stilltrue.runtime.waits.holders.try_finally`). So does one whose function has acquired the lock on every path, and
   releases only what it has acquired (:mod:`~stilltrue.runtime.waits.orphaned_locks.balance`).
3. A party in a block has released the lock if it waits for the condition. It may have released it if a party outside the block
   waits for the condition (``wait_for(condition.wait(), t)`` makes a separate task), or if its code, or that of the functions
   called there, mentions ``__exit__`` or releases anything that this code has not acquired itself. In a function of another
   installed package, this counts only if what it releases may be the lock
   (:mod:`~stilltrue.runtime.waits.holders.installed_packages`).
4. Functions of the application may acquire and release the lock (:mod:`~stilltrue.runtime.waits.holders.held_by_calls`). Then a
   mention of these functions is a mention of releasing.
5. A party also holds the application's gates that it has raised (:mod:`~stilltrue.runtime.waits.holders.gates.gates`), and the
   keys that it has added to a set of keys in use (:mod:`~stilltrue.runtime.waits.holders.gates.keyed_gates`). Likewise the
   queues used as pools of which it has an item (:mod:`~stilltrue.runtime.waits.holders.queues.queue_pools`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from types import CodeType, FrameType
from typing import Any

from stilltrue.runtime import compat
from stilltrue.runtime.introspection.code_cache import cached_by_code
from stilltrue.runtime.introspection.frames import frame_of, variables_of
from stilltrue.runtime.introspection.origins import is_application, is_own_code
from stilltrue.runtime.look.code.attributes import attribute_dictionary, attribute_of
from stilltrue.runtime.look.code.names import mentioned_in
from stilltrue.runtime.waits.holders.context_managers import entered_lock
from stilltrue.runtime.waits.holders.exit_stacks import exits_in, is_stack, released_by
from stilltrue.runtime.waits.holders.gates.gates import Gate, may_raise, raised_in
from stilltrue.runtime.waits.holders.gates.keyed_gates import keys_held_in, may_hold_key
from stilltrue.runtime.waits.holders.held_by_calls import held_by_calls_in, may_hold_by_calls, may_release_by_calls
from stilltrue.runtime.waits.holders.installed_packages import may_release
from stilltrue.runtime.waits.holders.loops_over_generators import iterated_by
from stilltrue.runtime.waits.holders.queues.queue_pools import is_pool, may_have_put, may_have_taken, taken_in
from stilltrue.runtime.waits.holders.try_finally import held_by_try_finally, may_hold_by_try_finally, releases_only_in_finally
from stilltrue.runtime.waits.holders.with_blocks import EXITS, METHODS, blocks_at, depth_of, exits_of, named_blocks_of
from stilltrue.runtime.waits.orphaned_locks.balance import may_hold, releases_only_own, surely_held
from stilltrue.runtime.waits.pools.lost_shares import has_no_other_references
from stilltrue.runtime.waits.resolvers.locks import WAITS, is_awaited, lock_of
from stilltrue.runtime.waits.wait import CallStack

Held = tuple[Any, Any, frozenset[str]]
"""A lock or semaphore, the ``ExitStack`` through which it was entered (None: none), and the functions that release it."""
_NO_FUNCTIONS = frozenset[str]()
_RELEASE_LOCK = frozenset({"release_lock"})
_MADE = (contextlib._GeneratorContextManager, contextlib._AsyncGeneratorContextManager)  # noqa: SLF001 - there is no public name
_RUNNING = ("gi_running", "ag_running")
_DEEP_MAX = 8


def held_by(stack: CallStack) -> tuple[list[tuple[Any, Any]], list[Any]]:
    """The locks and semaphores that a party with this stack holds, and those that it waits for outside their blocks (rule 3).

    The former with the ``ExitStack`` through which each was entered, or None.
    """
    held: list[tuple[Any, Any]] = []
    entered: list[Held] = []
    waited = [lock_of(variables_of(frame).get("self")) for frame in stack.frames if id(frame.f_code) in WAITS]
    giving: list[FrameType] = []
    for index, frame in enumerate(stack.frames):
        if _is_free(frame.f_code, frame.f_lasti):
            continue
        giving += [frame] if _may_have_released_any(frame) else []
        known = list(_held_in(frame, stack.coroutines[index] if stack.coroutines else None))
        entered += known
        for lock, left, givers in known:
            if giving and any(_may_have_released(giver, lock, frame.f_code) for giver in giving):
                continue
            if is_pool(lock) and any(may_have_put(inner, lock, givers) for inner in stack.frames[:index]):
                continue
            if givers and not is_pool(lock) and any(may_release_by_calls(other, givers) for other in stack.frames[: index + 1]):
                continue
            if not (waited and any(lock is other for other in waited)):
                held.append((lock, left))
    return held, [lock for lock in waited if lock is not None and not any(lock is other for other, _, _ in entered)]


def blocks_of_suspended(coroutine: Any, frame: FrameType) -> list[Any]:
    """The objects of the blocks that a suspended coroutine or generator is in."""
    return [one.__self__ for one in _exits_kept(coroutine, frame)]


def _exits_kept(coroutine: Any, frame: FrameType) -> Sequence[Any]:
    """The exit methods of the blocks that a suspended coroutine or generator is in, which it refers to."""
    depth = depth_of(frame)
    held = compat.referred_to_by_coroutine(coroutine) if depth else ()
    ends = [one for one in held if type(one) in METHODS and one.__name__ in EXITS]
    return ends[:depth]  # outermost first; beyond depth is a block that it is entering


def _held_in(frame: FrameType, coroutine: Any, deep: int = 0) -> Iterator[Held]:
    """The locks that a frame holds; ``coroutine``: the frame's own, if it is suspended."""
    if _is_free(frame.f_code, frame.f_lasti):
        return
    exits = exits_of(frame) if coroutine is None else _exits_kept(coroutine, frame)
    for method in exits:
        if method is not None:
            yield from _behind_exit(method, deep)
    if coroutine is None and None in exits:
        for one in named_blocks_of(frame, exits):
            yield from _in_block(one, deep)
    for generator in iterated_by(frame, coroutine) if deep < _DEEP_MAX else ():
        inner = frame_of(generator)
        if inner is not None and not _may_have_released_any(inner):
            yield from _held_in(inner, generator, deep + 1)
    if not _may_hold_without_block(frame.f_code):
        return
    yield from ((lock, None, _NO_FUNCTIONS) for lock in _held_without_block(frame))
    yield from ((lock, None, givers) for lock, givers in held_by_calls_in(frame))
    yield from ((gate, None, givers) for gate, givers in (*raised_in(frame), *keys_held_in(frame)))
    yield from ((pool, None, givers) for pool, givers in taken_in(frame))


@cached_by_code
def _may_hold_without_block(code: CodeType) -> bool:
    """Whether a frame of this code may hold anything outside its blocks."""
    by_locks = may_hold_by_try_finally(code) or may_hold(code) or may_hold_by_calls(code)
    return by_locks or may_raise(code) or may_hold_key(code) or may_have_taken(code)


@cached_by_code
def _is_free(code: CodeType, at: int) -> bool:
    """Whether a frame at this position cannot hold anything."""
    return not is_application(code) and not may_hold_by_try_finally(code) and not blocks_at(code, at)


def _in_block(thing: Any, deep: int) -> Iterator[Held]:
    """The locks that a party holds in a block of ``thing``, which no function under ``contextmanager`` made."""
    if not is_stack(thing):
        lock, givers = lock_inside(thing)
        if lock is not None:
            yield lock, None, givers
    elif deep < _DEEP_MAX:
        for method in exits_in(thing):
            if type(method) in METHODS and getattr(method, "__name__", "") in EXITS:
                yield from ((lock, thing, givers) for lock, _, givers in _behind_exit(method, deep + 1))
            elif (lock := lock_of(released_by(method))) is not None:
                yield lock, thing, _NO_FUNCTIONS


def _behind_exit(method: Any, deep: int) -> Iterator[Held]:
    """The locks that a party holds in a block with this exit method, which must be the only reference to its object."""
    manager = [method.__self__]
    if type(manager[0]) not in _MADE:
        yield from _in_block(manager[0], deep)
        return
    if deep >= _DEEP_MAX or not has_no_other_references(manager, 0, [method]):
        return
    made = [attribute_of(manager[0], "gen")]
    own = [manager[0], attribute_dictionary(manager[0])]
    frame = frame_of(made[0])
    if frame is None or not has_no_other_references(made, 0, own, weak=int(type(manager[0]) is _MADE[1])):
        return
    if not any(getattr(made[0], name, False) is True for name in _RUNNING) and not _may_have_released_any(frame):
        yield from _held_in(frame, made[0], deep + 1)


def _may_have_released(giver: FrameType, lock: Any, taker: CodeType) -> bool:
    """Whether a frame that mentions releasing may have released what ``taker`` holds, if that is a lock or a semaphore."""
    return type(lock) is not Gate and not is_pool(lock) and may_release(giver, lock, taker)


def _may_have_released_any(frame: FrameType) -> bool:
    """Whether a function may have released a lock that it or its callers hold, perhaps by calling an exit method itself."""
    may = _may_have_released_in(frame.f_code)
    return may_release_by_calls(frame, _RELEASE_LOCK) if may is None else may


@cached_by_code
def _may_have_released_in(code: CodeType) -> bool | None:
    """As :func:`_may_have_released_any`; None if it depends on what ``release_lock`` is called on."""
    if not is_application(code):
        return False
    mentioned = mentioned_in(code)
    if not EXITS.isdisjoint(mentioned) and is_own_code(code):  # libraries pass on the exits of their own blocks
        return True
    if "release" in mentioned and not (releases_only_in_finally(code) or releases_only_own(code)):
        return True
    return None if "release_lock" in mentioned else False


def _held_without_block(frame: FrameType) -> Iterable[Any]:
    """The locks that a frame has acquired without a block, and is bound to release."""
    code = frame.f_code
    bare = held_by_try_finally(frame) if may_hold_by_try_finally(code) else surely_held(frame) if is_application(code) else ()
    for value, awaited in bare:
        lock = lock_of(value)
        if awaited == is_awaited(lock):
            yield lock


def lock_inside(thing: Any) -> tuple[Any, frozenset[str]]:
    """The lock that a party holds in a block of ``thing``, and the functions of its class that release the lock.

    The lock is ``thing`` itself, or one that a class of the application acquires on entry.
    """
    lock = lock_of(thing)
    return (lock, _NO_FUNCTIONS) if lock is not None or thing is None else entered_lock(thing)
