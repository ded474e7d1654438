"""Which locks and semaphores somebody has, by where he stands.

Rules:

1. Who stands inside a ``with`` block of a lock has it; or in that of a condition made of it, or of an object whose class takes
   it at the entry (:mod:`~stilltrue.runtime.seen.entered`). Where a function under ``contextmanager`` stands suspended, and has
   the lock, who stands in the block of what it has made has it, if nobody else can let the function go on.
2. So has who stands between its ``acquire()`` and the ``finally`` that releases it
   (:mod:`~stilltrue.runtime.seen.brackets`), or where the function has taken it on every way, if the function releases nothing
   but what it has taken (:mod:`~stilltrue.runtime.seen.left.balance`).
3. Whoever stands in a block has given the lock back meanwhile if it waits for the condition; and may have, if somebody waits
   for it who does not stand in a block (``wait_for(condition.wait(), t)`` is a task of its own), or if its code, or that of
   the functions it has called there, speaks of releasing anything that this code has not taken itself, or of ``__exit__``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from types import FrameType
from typing import Any

from stilltrue.runtime import compat
from stilltrue.runtime.introspection.frames import frame_of, variables_of
from stilltrue.runtime.introspection.origins import is_application, is_own_code
from stilltrue.runtime.look.code.attributes import attribute_dictionary, attribute_of
from stilltrue.runtime.look.code.names import mentioned_in
from stilltrue.runtime.seen.blocks import EXITS, METHODS, depth_of, exits_of, named_blocks_of
from stilltrue.runtime.seen.brackets import gives_back_only_its_own, may_take_bare, taken_bare
from stilltrue.runtime.seen.entered import entered_lock
from stilltrue.runtime.seen.left.balance import releases_only_its_own, taken_for_sure
from stilltrue.runtime.seen.locks import AWAITED, GIVES_BACK, WAITS, lock_of
from stilltrue.runtime.seen.pools.lost import nobody_else_has
from stilltrue.runtime.seen.wait import CallStack

_MADE = (contextlib._GeneratorContextManager, contextlib._AsyncGeneratorContextManager)  # noqa: SLF001 - told nowhere else
_RUNNING = ("gi_running", "ag_running")
_DEEP_MAX = 8


def held_by(stack: CallStack) -> tuple[list[Any], list[Any]]:
    """The locks and semaphores that somebody has who stands there, and those given back elsewhere (rule 3)."""
    held: list[Any] = []
    entered: list[Any] = []
    waited = [lock_of(variables_of(frame).get("self")) for frame in stack.frames if id(frame.f_code) in WAITS]
    gives_back = False
    for index, frame in enumerate(stack.frames):
        gives_back = gives_back or _gives_back(frame)
        known = list(_held_in(frame, stack.coroutines[index] if stack.coroutines else None))
        entered += known
        held += [] if gives_back else [lock for lock in known if not any(lock is other for other in waited)]
    return held, [lock for lock in waited if lock is not None and not any(lock is other for other in entered)]


def left_by(coroutine: Any, frame: FrameType) -> list[Any]:
    """What the blocks are for in which a suspended coroutine or generator stands."""
    return [one.__self__ for one in _exits_kept(coroutine, frame)]


def _exits_kept(coroutine: Any, frame: FrameType) -> Sequence[Any]:
    """How the blocks are left in which a suspended coroutine or generator stands: it holds that."""
    depth = depth_of(frame)
    held = compat.names_in(coroutine) if depth else ()
    ends = [one for one in held if type(one) in METHODS and one.__name__ in EXITS]
    return ends[:depth]  # the outermost first; the last may be one that it is about to enter


def _held_in(frame: FrameType, coroutine: Any, deep: int = 0) -> Iterator[Any]:
    """What a frame has; ``coroutine``: whose it is, if it is suspended."""
    exits = exits_of(frame) if coroutine is None else _exits_kept(coroutine, frame)
    for left in exits:
        if left is not None:
            yield from _left(left, deep)
    if coroutine is None:
        yield from (lock for one in named_blocks_of(frame, exits) if (lock := lock_inside(one)) is not None)
    yield from _taken_bare(frame)


def _left(left: Any, deep: int) -> Iterator[Any]:
    """What somebody has who stands in a block that is left so; the method must be the only one to have its object."""
    if type(left.__self__) not in _MADE:
        lock = lock_inside(left.__self__)
        if lock is not None:
            yield lock
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


def _gives_back(frame: FrameType) -> bool:
    """Whether a function may have given a lock back that it has, or that its callers have; it may leave a block by hand."""
    code = frame.f_code
    if not is_application(code):
        return False
    mentioned = mentioned_in(code)
    by_hand = not EXITS.isdisjoint(mentioned) and is_own_code(code)  # libraries pass on how their own blocks are left
    if by_hand or GIVES_BACK.isdisjoint(mentioned):
        return by_hand
    return not gives_back_only_its_own(code) and not releases_only_its_own(code)


def _taken_bare(frame: FrameType) -> Iterable[Any]:
    """The locks that a frame has taken without a block, and is bound to give back."""
    code = frame.f_code
    bare = taken_bare(frame) if may_take_bare(code) else taken_for_sure(frame) if is_application(code) else ()
    for value, awaited in bare:
        lock = lock_of(value)
        if awaited == (type(lock) in AWAITED):
            yield lock


def lock_inside(thing: Any) -> Any:
    """The lock that somebody has who stands in a block of this: itself, or what a class of the application takes with it."""
    lock = lock_of(thing)
    if lock is None and thing is not None:
        taken, awaited = entered_lock(thing)
        lock = lock_of(taken)
        return lock if awaited == (type(lock) in AWAITED) else None
    return lock
