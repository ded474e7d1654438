"""Which locks and semaphores a thread or task holds, by where it stands.

Rules:

1. A party inside a ``with`` block of a lock holds it; likewise in that of a condition made of it, or of an object whose class
   takes it on entry (:mod:`~stilltrue.runtime.seen.holders.entered`). If a suspended function under ``contextmanager`` holds
   the lock, so does the party in the block of the object that the function made, if nobody else can resume the function. A
   party in the block of an ``ExitStack`` holds what was entered through it
   (:mod:`~stilltrue.runtime.seen.holders.exit_stacks`).
2. A party between ``acquire()`` and the ``finally`` that releases the lock holds it
   (:mod:`~stilltrue.runtime.seen.holders.brackets`); so it does if its function has taken the lock on every path, and releases
   only what it has taken (:mod:`~stilltrue.runtime.seen.left.balance`).
3. A party in a block has given the lock back if it waits for the condition. It may have given it back if a party outside the
   block waits for the condition (``wait_for(condition.wait(), t)`` makes a separate task), or if its code, or that of the
   functions it has called there, mentions ``__exit__``, or releasing anything that this code has not taken itself; in a
   function of another installed package, where that may be the lock (:mod:`~stilltrue.runtime.seen.holders.strangers`).
4. Functions of the application may take the lock and give it back (:mod:`~stilltrue.runtime.seen.holders.by_calls`). Then code
   that names these functions mentions releasing, too.
5. A party also holds the gates that it has raised, which the application made (:mod:`~stilltrue.runtime.seen.holders.gates`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from types import CodeType, FrameType
from typing import Any

from stilltrue.runtime import compat
from stilltrue.runtime.introspection.by_code import kept_by_code
from stilltrue.runtime.introspection.frames import frame_of, variables_of
from stilltrue.runtime.introspection.origins import is_application, is_own_code
from stilltrue.runtime.look.code.attributes import attribute_dictionary, attribute_of
from stilltrue.runtime.look.code.names import mentioned_in
from stilltrue.runtime.seen.holders.blocks import EXITS, METHODS, blocks_at, depth_of, exits_of, named_blocks_of
from stilltrue.runtime.seen.holders.brackets import gives_back_only_its_own, may_take_bare, taken_bare
from stilltrue.runtime.seen.holders.by_calls import gives_back_by_calls, taken_by_calls
from stilltrue.runtime.seen.holders.entered import entered_lock
from stilltrue.runtime.seen.holders.exit_stacks import exits_in, is_stack
from stilltrue.runtime.seen.holders.gates import Gate, raised_in
from stilltrue.runtime.seen.holders.strangers import may_give_back
from stilltrue.runtime.seen.left.balance import releases_only_its_own, taken_for_sure
from stilltrue.runtime.seen.pools.lost import nobody_else_has
from stilltrue.runtime.seen.wait import CallStack
from stilltrue.runtime.seen.waits.locks import AWAITED, GIVES_BACK, WAITS, lock_of

Held = tuple[Any, Any, frozenset[str]]
"""A lock or semaphore, the ``ExitStack`` through which it was entered (None: none), and the functions that give it back."""
_NO_FUNCTIONS = frozenset[str]()
_RELEASE_LOCK = frozenset({"release_lock"})
_MADE = (contextlib._GeneratorContextManager, contextlib._AsyncGeneratorContextManager)  # noqa: SLF001 - told nowhere else
_RUNNING = ("gi_running", "ag_running")
_DEEP_MAX = 8


def held_by(stack: CallStack) -> tuple[list[tuple[Any, Any]], list[Any]]:
    """The locks and semaphores that somebody has who stands there, and those given back elsewhere (rule 3).

    The former with the ``ExitStack`` through which each was entered, or None.
    """
    held: list[tuple[Any, Any]] = []
    entered: list[Held] = []
    waited = [lock_of(variables_of(frame).get("self")) for frame in stack.frames if id(frame.f_code) in WAITS]
    giving: list[FrameType] = []
    for index, frame in enumerate(stack.frames):
        giving += [frame] if _gives_back(frame) else []
        known = list(_held_in(frame, stack.coroutines[index] if stack.coroutines else None))
        entered += known
        kept = (one for one in known if not any(_may_give_back(giver, one[0], frame.f_code) for giver in giving))
        inner = stack.frames[: index + 1]
        kept = (one for one in kept if not (one[2] and any(gives_back_by_calls(other, one[2]) for other in inner)))
        held += [(lock, left) for lock, left, _ in kept if not any(lock is other for other in waited)]
    return held, [lock for lock in waited if lock is not None and not any(lock is other for other, _, _ in entered)]


def left_by(coroutine: Any, frame: FrameType) -> list[Any]:
    """What the blocks are for in which a suspended coroutine or generator stands."""
    return [one.__self__ for one in _exits_kept(coroutine, frame)]


def _exits_kept(coroutine: Any, frame: FrameType) -> Sequence[Any]:
    """How the blocks are left in which a suspended coroutine or generator stands: it holds that."""
    depth = depth_of(frame)
    held = compat.names_in(coroutine) if depth else ()
    ends = [one for one in held if type(one) in METHODS and one.__name__ in EXITS]
    return ends[:depth]  # the outermost first; the last may be one that it is about to enter


def _held_in(frame: FrameType, coroutine: Any, deep: int = 0) -> Iterator[Held]:
    """What a frame has; ``coroutine``: whose it is, if it is suspended."""
    if _is_free(frame.f_code, frame.f_lasti):
        return
    exits = exits_of(frame) if coroutine is None else _exits_kept(coroutine, frame)
    for left in exits:
        if left is not None:
            yield from _left(left, deep)
    if coroutine is None:
        for one in named_blocks_of(frame, exits):
            yield from _in_block(one, deep)
    yield from ((lock, None, _NO_FUNCTIONS) for lock in _taken_bare(frame))
    yield from ((lock, None, givers) for lock, givers in taken_by_calls(frame))
    yield from ((gate, None, givers) for gate, givers in raised_in(frame))


@kept_by_code
def _is_free(code: CodeType, at: int) -> bool:
    """Whether nobody who stands there has anything by that."""
    return not is_application(code) and not may_take_bare(code) and not blocks_at(code, at)


def _in_block(thing: Any, deep: int) -> Iterator[Held]:
    """What somebody has who stands in a block of this, which is no function's under ``contextmanager``."""
    if not is_stack(thing):
        lock, givers = lock_inside(thing)
        if lock is not None:
            yield lock, None, givers
    elif deep < _DEEP_MAX:
        for left in exits_in(thing):
            if type(left) in METHODS and getattr(left, "__name__", "") in EXITS:
                yield from ((lock, thing, givers) for lock, _, givers in _left(left, deep + 1))


def _left(left: Any, deep: int) -> Iterator[Held]:
    """What somebody has who stands in a block that is left so; the method must be the only one to have its object."""
    if type(left.__self__) not in _MADE:
        yield from _in_block(left.__self__, deep)
        return
    if deep >= _DEEP_MAX or not nobody_else_has([left.__self__], 0, [left]):
        return
    made = [attribute_of(left.__self__, "gen")]
    own = [left.__self__, attribute_dictionary(left.__self__)]
    frame = frame_of(made[0])
    if frame is None or not nobody_else_has(made, 0, own, weak=int(type(left.__self__) is _MADE[1])):
        return
    if not any(getattr(made[0], name, False) is True for name in _RUNNING) and not _gives_back(frame):
        yield from _held_in(frame, made[0], deep + 1)


def _may_give_back(giver: FrameType, lock: Any, taker: CodeType) -> bool:
    """Whether a frame that speaks of releasing may have given back what ``taker`` has; gates are given back by known names."""
    return type(lock) is not Gate and may_give_back(giver, lock, taker)


def _gives_back(frame: FrameType) -> bool:
    """Whether a function may have given a lock back that it has, or that its callers have; it may leave a block by hand."""
    code = frame.f_code
    if not is_application(code):
        return False
    mentioned = mentioned_in(code)
    by_hand = not EXITS.isdisjoint(mentioned) and is_own_code(code)  # libraries pass on how their own blocks are left
    if by_hand or GIVES_BACK.isdisjoint(mentioned):
        return by_hand
    if "release_lock" in mentioned and gives_back_by_calls(frame, _RELEASE_LOCK):
        return True
    return "release" in mentioned and not (gives_back_only_its_own(code) or releases_only_its_own(code))


def _taken_bare(frame: FrameType) -> Iterable[Any]:
    """The locks that a frame has taken without a block, and is bound to give back."""
    code = frame.f_code
    bare = taken_bare(frame) if may_take_bare(code) else taken_for_sure(frame) if is_application(code) else ()
    for value, awaited in bare:
        lock = lock_of(value)
        if awaited == (type(lock) in AWAITED):
            yield lock


def lock_inside(thing: Any) -> tuple[Any, frozenset[str]]:
    """The lock that somebody has who stands in a block of this: itself, or what a class of the application takes with it.

    And the functions of that class that give it back.
    """
    lock = lock_of(thing)
    return (lock, _NO_FUNCTIONS) if lock is not None or thing is None else entered_lock(thing)
