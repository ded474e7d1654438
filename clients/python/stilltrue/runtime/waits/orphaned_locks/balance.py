"""Finds what a function releases without having acquired it, and where it may hold what it has acquired, from its bytecode.

Rules:

1. ``acquire()`` as a separate statement without arguments (awaited or not) acquires its expression's object. In any other form
   it may have acquired it.
2. ``release()`` without arguments on the same expression releases it. Any other mention of ``release``, or of an exit method of
   ``with`` blocks, may release it at any moment.
3. All paths through the code are followed, including those of exceptions. An object that some path releases without having
   acquired it is unowned.
"""

from __future__ import annotations

import dis
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any

from stilltrue.runtime.bytecode.instructions import exception_entries_of, is_jump
from stilltrue.runtime.introspection.code_cache import cached_by_code
from stilltrue.runtime.introspection.frames import variables_of
from stilltrue.runtime.look.code.attributes import UNKNOWN
from stilltrue.runtime.look.code.names import ATTRIBUTES
from stilltrue.runtime.waits.holders.try_finally import called_and_dropped
from stilltrue.runtime.waits.holders.with_blocks import (
    Expression,
    expression_before,
    instructions_of,
    is_changed,
    value_of,
)
from stilltrue.runtime.waits.orphaned_locks.census import codes_within

RELEASING = frozenset({"release", "release_lock", "__exit__", "__aexit__", "_release_save"})
_JUMPS = frozenset({"JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT", "JUMP_ABSOLUTE"})
_RETURNS = frozenset({"RETURN_VALUE", "RETURN_CONST"})
_LEAVES = _RETURNS | {"RERAISE", "RAISE_VARARGS"}
_FREE, _HELD = 1, 2
ACQUIRES, MAY_ACQUIRE, RELEASES = "acquires", "may acquire", "releases"


@dataclass(frozen=True, slots=True)
class Uses:
    """How a code object uses locks.

    ``unowned``: what it may release without having acquired it (rule 3); an empty expression is not understood. ``own``: what
    it releases only after acquiring it. ``held``: by acquired expression, the offsets at which it may hold it; ``sure``: by own
    expression that it always releases, except after an exception, the offsets at which it surely holds it.
    """

    unowned: frozenset[Expression] = frozenset()
    own: frozenset[Expression] = frozenset()
    held: Mapping[Expression, frozenset[int]] | None = None
    sure: Mapping[Expression, frozenset[int]] | None = None


@dataclass(frozen=True, slots=True)
class Balance:
    """How a code object uses a single lock, as in :class:`Uses`; ``sure`` is None if it may leave the lock behind."""

    unowned: bool
    held: frozenset[int]
    sure: frozenset[int] | None


@cached_by_code
def uses_of(code: CodeType) -> Uses:
    """How a code object uses locks, without the functions within it."""
    names = frozenset(code.co_names)
    said = any(type(one) is str and one in RELEASING for one in code.co_consts)
    if "acquire" not in names and RELEASING.isdisjoint(names):
        return Uses(frozenset({()}) if said else frozenset())
    every = instructions_of(code)
    effects: dict[Expression, dict[int, str]] = {}
    unowned: set[Expression] = {()} if said else set()
    for index, expression, effect in _effects(every):
        if effect:
            effects.setdefault(expression, {})[index] = effect
        else:
            unowned.add(expression)
    held: dict[Expression, frozenset[int]] = {}
    sure: dict[Expression, frozenset[int]] = {}
    for expression, those in effects.items():
        balance = balance_of(code, those, (expression,))
        if balance.unowned:
            unowned.add(expression)
        held[expression] = balance.held
        if balance.sure is not None:
            sure[expression] = balance.sure
    own = frozenset(one for one, those in effects.items() if RELEASES in those.values()) - unowned
    return Uses(frozenset(unowned), own, held, {one: sure[one] for one in own if one in sure})


def balance_of(
    code: CodeType, effects: Mapping[int, str], expressions: Iterable[Expression], *, swallowed: bool = True
) -> Balance:
    """The balance of the ``effects`` of instructions on the single lock that ``expressions`` mean while it is held.

    ``swallowed``: whether the exit of a ``with`` block may swallow an exception.
    """
    every = instructions_of(code)
    states = _states(code, every, effects, swallowed=swallowed)
    inner = [one for one, state in zip(every, states, strict=True) if state & _HELD]
    another = any(is_changed(one, inner) for one in expressions)
    early = any(effect == RELEASES and states[index] & _FREE for index, effect in effects.items())
    straight = _states(code, every, effects, failing=False)
    left = any(one.opname in _RETURNS and state & _HELD for one, state in zip(every, straight, strict=True))
    certain = (index for index, state in enumerate(states) if state == _HELD)
    sure = None if left else _where(code, every, certain)
    return Balance(another or early, _where(code, every, _held(states)), sure)


def leaves_with(code: CodeType, effects: Mapping[int, str]) -> bool:
    """Whether a code object has had exactly one of these ``effects``, all acquiring, wherever it returns."""
    every = instructions_of(code)
    states = _states(code, every, effects, failing=False)
    returns = [state for one, state in zip(every, states, strict=True) if one.opname in _RETURNS and state]
    return bool(returns) and all(state == _HELD for state in returns) and all(states[index] <= _FREE for index in effects)


def surely_held(frame: FrameType) -> Iterator[tuple[Any, bool]]:
    """The objects that a frame acquired on every path to its position and will release, each with whether it awaited that."""
    sure = uses_of(frame.f_code).sure if may_hold(frame.f_code) else None
    here = [one for one, offsets in (sure or {}).items() if frame.f_lasti in offsets]
    names = variables_of(frame) if here else {}
    for expression in here:
        value = value_of(expression, names, frame.f_globals)
        if value is not UNKNOWN:
            yield value, expression in _awaited_in(frame.f_code)


@cached_by_code
def releases_only_own(code: CodeType) -> bool:
    """Whether a code object and the functions within it each release only what they have acquired."""
    return not any(uses_of(one).unowned for one in codes_within(code))


@cached_by_code
def may_hold(code: CodeType) -> bool:
    """Whether a frame of this code may hold what it has acquired without a bracket."""
    return "acquire" in code.co_names and "release" in code.co_names and releases_only_own(code)


@cached_by_code
def _awaited_in(code: CodeType) -> frozenset[Expression]:
    """The expressions that a code object acquires by ``await``."""
    every = instructions_of(code)
    taken = ((index, one) for index, one in enumerate(every) if one.opname in ATTRIBUTES and one.argval == "acquire")
    done = ((expression_before(every, index), called_and_dropped(every, index)) for index, _ in taken)
    return frozenset(expression for expression, dropped in done if dropped is not None and dropped[1])


@cached_by_code
def codes_ahead(code: CodeType, at: int) -> tuple[CodeType, ...]:
    """The functions within a code object that a frame at this position may still create."""
    every = instructions_of(code)
    index_of = {one.offset: index for index, one in enumerate(every)}
    entries = exception_entries_of(code)
    todo = [max((index for index, one in enumerate(every) if one.offset <= at), default=0)]
    seen = set(todo)
    while todo:
        index = todo.pop()
        handled = [index_of[entry.target] for entry in entries if entry.start <= every[index].offset < entry.end]
        for way in (*_next(every, index, index_of), *handled):
            if way not in seen:
                seen.add(way)
                todo.append(way)
    return tuple(every[index].argval for index in sorted(seen) if type(every[index].argval) is CodeType)


def _held(states: Sequence[int]) -> Iterator[int]:
    return (index for index, state in enumerate(states) if state & _HELD)


def _where(code: CodeType, every: Sequence[dis.Instruction], indices: Iterable[int]) -> frozenset[int]:
    return frozenset(offset for index in indices for offset in _offsets(code, every, index))


def _offsets(code: CodeType, every: Sequence[dis.Instruction], index: int) -> range:
    """The offsets of a frame at an instruction: during a call it is at the end of the inline cache."""
    end = every[index + 1].offset if index + 1 < len(every) else len(code.co_code)
    return range(every[index].offset, end)


def _effects(every: Sequence[dis.Instruction]) -> Iterator[tuple[int, Expression, str]]:
    """The instructions that acquire or release an expression (rules 1 and 2). An empty effect may happen at any later time."""
    for index, one in enumerate(every):
        if one.opname not in ATTRIBUTES or (one.argval != "acquire" and one.argval not in RELEASING):
            continue
        expression = expression_before(every, index)
        done = called_and_dropped(every, index)
        if one.argval == "acquire":
            yield (index, expression, MAY_ACQUIRE) if done is None or not expression else (done[0], expression, ACQUIRES)
        else:
            yield index, expression, RELEASES if done is not None and expression and one.argval == "release" else ""


def _states(
    code: CodeType,
    every: Sequence[dis.Instruction],
    effects: Mapping[int, str],
    *,
    failing: bool = True,
    swallowed: bool = True,
) -> list[int]:
    """For each instruction, whether the lock may be free, held or either before it; 0: it is not reached.

    ``failing``: follow exceptions, too; ``swallowed``: the exit of a block may swallow one.
    """
    swallowing = frozenset() if swallowed else frozenset(_swallowing(every))
    index_of = {one.offset: index for index, one in enumerate(every)}
    entries = exception_entries_of(code) if failing else ()
    handlers = [[index_of[entry.target] for entry in entries if entry.start <= one.offset < entry.end] for one in every]
    states = [0] * len(every)
    states[0] = _FREE
    todo = [0]
    while todo:
        index = todo.pop()
        before = states[index]
        after = _after(before, effects.get(index, ""))
        ways = [(way, after) for way in _next(every, index, index_of) if index not in swallowing or way == index + 1]
        ways += [(way, before | after) for way in handlers[index]]
        for way, state in ways:
            if states[way] | state != states[way]:
                states[way] |= state
                todo.append(way)
    return states


def _swallowing(every: Sequence[dis.Instruction]) -> Iterator[int]:
    """The jumps taken if the exit of a ``with`` block has swallowed an exception."""
    for index, one in enumerate(every):
        if one.opname == "WITH_EXCEPT_START":
            yield next(later for later in range(index, len(every)) if "IF_TRUE" in every[later].opname)


def _after(before: int, effect: str) -> int:
    if effect == ACQUIRES:
        return _HELD
    if effect == RELEASES:
        return _FREE
    return before | _HELD if effect == MAY_ACQUIRE else before


def _next(every: Sequence[dis.Instruction], index: int, index_of: Mapping[int, int]) -> Iterator[int]:
    """The instructions that may follow one."""
    one: Any = every[index]
    if one.opname in _LEAVES:
        return
    if is_jump(one):
        yield index_of[one.argval]
    if one.opname not in _JUMPS and index + 1 < len(every):
        yield index + 1
