"""The proof that only the known holders have a lock or share, and that no other party will release it.

Rules:

1. No other party holds it: no other thread, and no suspended coroutine or generator, is in one of its blocks, or where it may
   have acquired it otherwise. A block that is not understood may be the lock's.
2. No other party releases it: each function that may refer to it in a release has acquired it before, in the same function, so
   it gets there only once it has the lock. A function refers to it by a global, a closure variable or an attribute under which
   the lock is really found. By any other variable it may refer to anything, unless it belongs to a library. A library knows
   only the attributes of its own classes and of classes derived from them.
3. No object keeps a method of it that would release it (a callback, an exit stack, a condition). In the child of a fork, the
   frames of the parent's threads keep exit methods that will never be called. Such a method has one reference, neither from an
   object nor from a frame of a live thread.
4. It is a resource: its waiters release it once they have it. A lock that no code ever releases is a place to park.
5. Its waiters have not run meanwhile. A release would have woken one of them, so the lock has not changed hands in between.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from types import CellType, CodeType, FrameType, FunctionType
from typing import Any

from stilltrue.runtime import compat
from stilltrue.runtime.bytecode.qualified_names import qualname_of
from stilltrue.runtime.introspection.collector import referrers_of
from stilltrue.runtime.introspection.frames import no_collection, variables_of
from stilltrue.runtime.introspection.origins import is_application, is_of_anyios_semaphore, is_ours
from stilltrue.runtime.look.code.attributes import UNKNOWN, attribute_dictionary, attribute_of
from stilltrue.runtime.waits.holders.held_locks import blocks_of_suspended
from stilltrue.runtime.waits.holders.with_blocks import (
    METHODS,
    Expression,
    blocks_of,
    entered_in,
    exits_of,
    factories_at,
    is_entering,
    value_of,
)
from stilltrue.runtime.waits.orphaned_locks.balance import codes_ahead, uses_of
from stilltrue.runtime.waits.orphaned_locks.census import Census, codes_within, is_of, root_of
from stilltrue.runtime.waits.orphaned_locks.lock_effects import RELEASING
from stilltrue.runtime.waits.resolvers.locks import LOCKS, is_anyios_adapter, lock_of
from stilltrue.runtime.waits.wait import CallStack

_CONTEXT_MANAGERS = frozenset({"contextmanager.<locals>.helper", "asynccontextmanager.<locals>.helper"})
_OF_OURS = 4
"""References from two lists of ours, from ``getrefcount``, and one more."""
_ENTERING = frozenset({"__enter__", "__exit__", "__aenter__", "__aexit__", "acquire"})


class Proof:
    """A proof for one lock or semaphore, ``thing``, with its ``waiters``."""

    def __init__(self, thing: Any, waiters: Sequence[CallStack], census: Census, holders: Sequence[CallStack] = ()) -> None:
        """``holders``: the stacks of the known holders."""
        self._thing = thing
        self._holding = {id(frame): frame for one in holders for frame in one.frames}
        self._left_later = sum(map(self._leaves, holders))
        self._waiters = waiters
        self._census = census
        self._roots = frozenset(
            root_of(frame.f_code) for one in waiters for frame in one.frames[:4] if is_application(frame.f_code)
        )
        adapters = [one for one in referrers_of((thing,)) if is_anyios_adapter(one)]
        self._referrers = [one for one in referrers_of((thing, *adapters)) if type(one) is not list]
        adapters.clear()
        self._modules = {compat.module_of(kind) for owner in self._owners() for kind in type(owner).__mro__}

    def holds(self, running: Iterable[Sequence[FrameType]]) -> bool:
        """Whether the proof succeeds; ``running``: the frames of all threads. Can be called only once."""
        try:
            return self._holds(running)
        finally:
            self._referrers.clear()  # a cycle must not keep them alive, as references are counted

    def _holds(self, running: Iterable[Sequence[FrameType]]) -> bool:
        if self._census.hidden or not any(map(self._releases, self._waiters)):
            return False
        every = [frame for frames in running for frame in frames]
        if self._is_bound(every):
            return False
        threads = [frame for frame in every if not is_ours(frame.f_code)]
        others = (frame for frame in threads if id(frame) not in self._holding)
        suspended = (one for one in self._census.suspended if id(one[1]) not in self._holding)
        if any(map(self._may_have, others)) or any(self._has_suspended(*one) for one in suspended):
            return False
        frames = [*threads, *(frame for _, frame in self._census.suspended)]
        frames = [one for one in frames if not is_of_anyios_semaphore(one.f_code)]  # it passes on a share that it has got
        return not any(map(self._may_release, self._census.functions)) and not any(map(self._may_come_to_release, frames))

    # -- rule 4 --------------------------------------------------------------------------------------------------------

    def _releases(self, waiter: CallStack) -> bool:
        """Whether a waiter will release it later."""
        frame = next((one for one in waiter.frames if is_application(one.f_code)), None)
        if frame is None:
            return False
        names = variables_of(frame)
        known = uses_of(frame.f_code).own | entered_in(frame.f_code)
        return any(lock_of(value_of(one, names, frame.f_globals)) is self._thing for one in known)

    # -- rule 3 --------------------------------------------------------------------------------------------------------

    def _is_bound(self, running: Sequence[FrameType]) -> bool:
        """Whether an object keeps a method that would release it, besides the exit methods that waiters and holders keep."""
        if any(map(_may_release_later, self._referrers)):
            return True
        entering = sum(map(_is_exit, self._referrers))  # no loop variable may keep one: references are counted below
        frames = (next((one for one in waiter.frames if is_application(one.f_code)), None) for waiter in self._waiters)
        known = self._left_later + sum(one is not None and is_entering(one) for one in frames)
        return entering > known and entering > self._left_later + self._kept_by_no_object(running)

    def _kept_by_no_object(self, running: Sequence[FrameType]) -> int:
        """In the child of a fork, the number of exits that neither an object nor a live thread's block keeps (rule 3).

        They belong to the parent's threads, and to blocks that are being entered.
        """
        if not no_collection.is_of_child:
            return 0
        exits = [one for frame in running for one in exits_of(frame)]
        if None in exits:
            return 0
        there = {id(one) for one in exits} | {id(one) for frame in running for one in variables_of(frame).values()}
        own = [one for one in self._referrers if _is_exit(one) and id(one) not in there]
        return sum(_has_one_reference(own, index, self._referrers) for index in range(len(own)))

    def _leaves(self, holder: CallStack) -> int:
        """The number of blocks of it that a holder is in."""
        coroutines = holder.coroutines or (None,) * len(holder.frames)
        blocks = (
            [one.__self__ for one in exits_of(frame) if one is not None]
            if coroutine is None
            else blocks_of_suspended(coroutine, frame)
            for frame, coroutine in zip(holder.frames, coroutines, strict=False)
        )
        objects = [one for those in blocks for one in those]
        return sum(one is self._thing or (is_anyios_adapter(one) and lock_of(one) is self._thing) for one in objects)

    # -- rule 1 --------------------------------------------------------------------------------------------------------

    def _has_suspended(self, suspended: Any, frame: FrameType) -> bool:
        """Whether a suspended coroutine or generator may hold it."""
        if any(lock_of(one) is self._thing for one in blocks_of_suspended(suspended, frame)):
            return True
        return self._may_have_acquired(frame)

    def _may_have(self, frame: FrameType) -> bool:
        """Whether a thread may hold it through this frame."""
        if any(lock_of(one) is self._thing for one in blocks_of(frame)) or self._may_have_acquired(frame):
            return True
        if not is_of(frame.f_code, self._roots):
            return False
        return any(not _makes_another(one, frame) for one in factories_at(frame))

    def _may_have_acquired(self, frame: FrameType) -> bool:
        held = uses_of(frame.f_code).held if _may_use(frame.f_code) else None
        if not held:
            return False
        names: dict[str, Any] | None = None
        for expression, offsets in held.items():
            if frame.f_lasti not in offsets:
                continue
            names = variables_of(frame) if names is None else names
            value = value_of(expression, names, frame.f_globals) if expression else UNKNOWN
            if lock_of(value) is self._thing or (value is UNKNOWN and is_of(frame.f_code, self._roots)):
                return True
        return False

    # -- rule 2 --------------------------------------------------------------------------------------------------------

    def _may_release(self, function: FunctionType) -> bool:
        code = function.__code__
        if is_ours(code) or not is_application(code):
            return False
        return any(self._may_mean_it(one, expression, function) for one, expression in _released_by(code))

    def _may_come_to_release(self, frame: FrameType) -> bool:
        """Whether a running frame, or a function within it, may release it."""
        code = frame.f_code
        if not is_application(code):
            return any(
                lock_of(value_of(one, variables_of(frame), frame.f_globals)) is self._thing
                for one in (uses_of(code).unowned if _may_use(code) else ())
                if one
            )
        ahead = (one for made in codes_ahead(code, frame.f_lasti) for one in _released_by(made))
        own = ((code, expression) for expression in (uses_of(code).unowned if _may_use(code) else ()))
        return any(self._may_mean_it(one, expression, frame) for one, expression in (*own, *ahead))

    def _may_mean_it(self, code: CodeType, expression: Expression, by: FunctionType | FrameType) -> bool:
        """Whether an expression in the code of ``by``, or of a function within it, may refer to it."""
        own = is_of(code, self._roots)
        if not expression:
            return own
        kind, name = expression[-1]
        if kind == "attribute":
            names = by.f_globals if isinstance(by, FrameType) else by.__globals__
            return (own or names.get("__name__") in self._modules) and self._is_attribute(name)
        if kind == "item":
            return own
        return self._is_variable(code, name, by, own)

    def _is_variable(self, code: CodeType, name: str, by: FunctionType | FrameType, own: bool) -> bool:
        """Whether a variable of this code may refer to it."""
        if name not in (*code.co_varnames, *code.co_freevars, *code.co_cellvars):
            names = by.f_globals if isinstance(by, FrameType) else by.__globals__
            return name in names and lock_of(names[name]) is self._thing
        if isinstance(by, FrameType) and code is by.f_code:
            value = variables_of(by).get(name, UNKNOWN)
            return lock_of(value) is self._thing or (own and value is UNKNOWN)
        if isinstance(by, FunctionType) and code is by.__code__ and name in code.co_freevars:
            return self._is_in(by.__closure__, code.co_freevars.index(name))
        return own

    def _is_in(self, closure: tuple[CellType, ...] | None, index: int) -> bool:
        try:
            return closure is not None and lock_of(closure[index].cell_contents) is self._thing
        except ValueError:  # an empty cell
            return True

    def _owners(self) -> Iterator[Any]:
        """The objects with it as an attribute."""
        for one in self._referrers:
            if type(one) is dict:
                yield from (owner for owner in referrers_of((one,)) if attribute_dictionary(owner) is one)
            else:
                yield one

    def _is_attribute(self, name: str) -> bool:
        """Whether some object has it, or a condition of it, under this name."""
        return any(
            lock_of(attribute_of(one, name)) is self._thing
            or (issubclass(type(one), dict) and lock_of(dict.get(one, name)) is self._thing)
            for one in self._referrers
        )


def _released_by(code: CodeType) -> Iterator[tuple[CodeType, Expression]]:
    """The expressions that a code object, and the functions within it, may release without having acquired them."""
    for one in codes_within(code):
        if _may_use(one):
            yield from ((one, expression) for expression in uses_of(one).unowned)


def _may_release_later(thing: Any) -> bool:
    """Whether a referrer of the lock is a partial function or a method other than those that a ``with`` block keeps."""
    return type(thing) is partial or (type(thing) in METHODS and thing.__name__ not in _ENTERING)


def _is_exit(thing: Any) -> bool:
    return type(thing) in METHODS and thing.__name__ in ("__exit__", "__aexit__")


def _has_one_reference(things: list[Any], index: int, beside: list[Any]) -> bool:
    """Whether ``things[index]``, which ``beside`` also lists, has one further reference, and not from an object."""
    holders = gc.get_referrers(things[index])
    return sys.getrefcount(things[index]) == _OF_OURS and all(one is things or one is beside for one in holders)


def _may_use(code: CodeType) -> bool:
    names = code.co_names
    return "acquire" in names or any(one in names or one in code.co_consts for one in RELEASING)


def _makes_another(expression: Expression, frame: FrameType) -> bool:
    """Whether the call for a block's object cannot have returned a lock that other parties have."""
    if not expression:
        return False
    names = variables_of(frame)
    called = value_of(expression, names, frame.f_globals)
    if called is UNKNOWN and len(expression) > 1:
        owner = value_of(expression[:-1], names, frame.f_globals)
        kinds = () if owner is UNKNOWN else type(owner).__mro__
        called = next((kind.__dict__[expression[-1][1]] for kind in kinds if expression[-1][1] in kind.__dict__), UNKNOWN)
    if type(called) is FunctionType:
        return qualname_of(called.__code__) in _CONTEXT_MANAGERS or not is_of(called.__code__, frozenset())
    if issubclass(type(called), type):
        return called not in LOCKS and not issubclass(called, (threading.Condition, asyncio.Condition))
    return type(called) in compat.COMPILED_FUNCTIONS and called.__name__ != "__enter__"
