"""Finds the locks that a frame holds by calling functions of the application that acquire and release them.

Rules:

1. The call that acquires the lock is a separate statement (:mod:`~stilltrue.runtime.waits.holders.delegates`), or its result is
   tested. It is on every path to the frame's position, and on every path from there to a return the function calls one that
   releases the same lock.
2. The code mentions the releasing functions nowhere else, nor anything else of the same class or module that releases the lock.
3. A function called meanwhile may also have released the lock, if its code mentions the releasing functions for anything that
   it has not acquired itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import CodeType, FrameType, FunctionType
from typing import Any

from stilltrue.runtime.introspection.code_cache import cached_by_code
from stilltrue.runtime.introspection.frames import variables_of
from stilltrue.runtime.introspection.origins import is_application
from stilltrue.runtime.look.code.names import mentioned_in
from stilltrue.runtime.waits.holders.delegates import RELEASES, Call, Effect, call_at, effect_of, method_of
from stilltrue.runtime.waits.holders.gates.gates import Gate
from stilltrue.runtime.waits.holders.try_finally import dropped_after
from stilltrue.runtime.waits.holders.with_blocks import instructions_of, value_of
from stilltrue.runtime.waits.orphaned_locks import lock_effects
from stilltrue.runtime.waits.orphaned_locks.balance import Balance, balance_of, releases_only_own
from stilltrue.runtime.waits.orphaned_locks.census import codes_within

Taken = tuple[Any, frozenset[str]]
"""A lock, and the names of the functions that release it."""


@dataclass(frozen=True, slots=True)
class _Made:
    """A call, where its result is dropped (None: it is used), and its effect."""

    call: Call
    dropped: int | None
    effect: Effect


def held_by_calls_in(frame: FrameType) -> Iterator[Taken]:
    """The locks that a frame holds by calls, at its position."""
    code = frame.f_code
    if not may_hold_by_calls(code):
        return
    names = variables_of(frame)
    made = [(those, _balance(code, those)) for those in _by_lock(_made(calls_in(code), names, frame.f_globals))]
    own = [one for those, known in made if not known.unowned for one in those]
    for those, known in made:
        giving = [one.effect.functions for one in those if not one.effect.takes]
        givers = frozenset[str]().union(*giving)
        if type(those[0].effect.lock) is not Gate:  # for locks, mentions of release() are judged elsewhere, by object
            givers -= RELEASES
        if not giving or known.unowned or known.sure is None or frame.f_lasti not in known.sure:
            continue
        if not (_names_elsewhere(code, givers, own) or _may_release_otherwise(frame, givers, those, names)):
            yield those[0].effect.lock, givers


def may_release_by_calls(frame: FrameType, names: frozenset[str]) -> bool:
    """Whether a frame may have released, by a function of one of these names, what it has not acquired itself (rule 3)."""
    code = frame.f_code
    if not is_application(code) or not any(map(names.intersection, map(named_in, codes_within(code)))):
        return False
    made = _made(calls_in(code), variables_of(frame), frame.f_globals)
    own = [one for those in _by_lock(made) if not _balance(code, those).unowned for one in those]
    return _names_elsewhere(code, names, own)


def _made(calls: Iterable[tuple[Call, int | None]], names: Mapping[str, Any], others: Mapping[str, Any]) -> Iterator[_Made]:
    """Those of the calls that acquire or release through a function, with their effects."""
    for call, dropped in calls:
        effect = effect_of(call, names, others, tries=True)
        if effect is not None and effect.deep:
            yield _Made(call, dropped, effect)


def _by_lock(made: Iterable[_Made]) -> list[list[_Made]]:
    found: dict[int, list[_Made]] = {}
    for one in made:
        found.setdefault(id(one.effect.lock), []).append(one)
    return list(found.values())


def _balance(code: CodeType, those: Iterable[_Made]) -> Balance:
    effects: dict[int, str] = {}
    for one in those:
        if not one.effect.takes:
            effects[one.call.mention] = lock_effects.RELEASES
        elif one.dropped is None or one.effect.tries:
            at, effect = lock_effects.result_used(instructions_of(code), one.call.at) or (one.call.at, lock_effects.MAY_ACQUIRE)
            effects[at] = effect
        else:
            effects[one.dropped] = lock_effects.ACQUIRES
    expressions = dict.fromkeys(part for one in those for part in (one.call.receiver, *one.call.arguments))
    return balance_of(code, effects, expressions, may_leave_elsewhere=True)


def _names_elsewhere(code: CodeType, names: frozenset[str], known: Iterable[_Made]) -> bool:
    """Whether a code object, or a function within it, mentions one of these names outside the known calls (rule 2)."""
    mentions = {one.call.mention for one in known if one.dropped is not None}
    if any(index not in mentions and _mentions(one.argval, names) for index, one in enumerate(instructions_of(code))):
        return True
    return any(not names.isdisjoint(named_in(one)) for one in codes_within(code) if one is not code)


def _mentions(argument: Any, names: frozenset[str]) -> bool:
    return (type(argument) is str and argument in names) or (type(argument) is tuple and not names.isdisjoint(argument))


def _may_release_otherwise(frame: FrameType, givers: frozenset[str], those: Iterable[_Made], names: Mapping[str, Any]) -> bool:
    """Whether the code mentions another method or function, besides these, that releases something."""
    known = {one.call.name for one in those}
    owners = [type(value_of(one.call.receiver, names, frame.f_globals)) for one in those if one.call.receiver]
    for name in mentioned_in(frame.f_code) - known:
        function = frame.f_globals.get(name)
        if type(function) is FunctionType and not owners and not releases_only_own(function.__code__):
            return True
        methods = (one for kind in owners if (one := method_of(kind, name)) is not None)
        codes = (code for one in methods for code in codes_within(one.__code__))
        if any(not (givers | RELEASES).isdisjoint(named_in(code)) for code in codes):
            return True
    return False


@cached_by_code
def named_in(code: CodeType) -> frozenset[str]:
    """All names and strings of a code object."""
    texts = (one for one in code.co_consts if type(one) is str)
    return frozenset((*code.co_names, *code.co_varnames, *code.co_freevars, *texts))


@cached_by_code
def calls_in(code: CodeType) -> tuple[tuple[Call, int | None], ...]:
    """The understood calls of a code object, each with where its result is dropped (None: it is used)."""
    every = instructions_of(code)
    calls = (call for index, one in enumerate(every) if one.opname == "CALL" and (call := call_at(every, index)) is not None)
    dropped = ((call, dropped_after(every, call.at)) for call in calls)
    return tuple((call, None if done is None else done[0]) for call, done in dropped)


@cached_by_code
def may_hold_by_calls(code: CodeType) -> bool:
    """Whether a frame of this code may hold a lock by calls: it calls two methods of one object, or two functions with it."""
    names: dict[Any, set[str]] = {}
    for call, _ in calls_in(code) if is_application(code) else ():
        names.setdefault(call.receiver or call.arguments, set()).add(call.name)
    return any(len(those) > 1 for those in names.values())
