"""Finds what a function releases without having acquired it, and where it may hold what it has acquired, from its bytecode.

Rules:

1. ``acquire()`` as a separate statement without a timeout (awaited or not, also in ``asyncio.wait_for``) acquires its
   expression's object. If its result is tested, also later in a local variable, it has done so where that is true. In any other
   form it may have acquired it.
2. ``release()`` without arguments on the same expression releases it. So does ``stack.callback(lock.release)``: from there on,
   the ``ExitStack`` has it. Any other mention of ``release``, or of an exit method of ``with`` blocks, may release it at any
   moment.
3. All paths through the code are followed, including those of exceptions. None goes on after ``abort`` with a status code or
   ``abort_with_status``: a gRPC context raises there. An object that some path releases without having
   acquired it is unowned.
4. One variable is followed as well: that with the result of ``acquire()`` or else, if the code sets it to constants, the one
   that it tests before it releases (``if not handed_on: lock.release()``).
"""

from __future__ import annotations

import dis
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any

from stilltrue.runtime.bytecode.instructions import RETURNS
from stilltrue.runtime.introspection.code_cache import cached_by_code
from stilltrue.runtime.introspection.frames import variables_of
from stilltrue.runtime.look.code.attributes import UNKNOWN
from stilltrue.runtime.look.code.control_flow import ControlFlow
from stilltrue.runtime.look.code.names import ATTRIBUTES
from stilltrue.runtime.waits.holders.with_blocks import Expression, expression_before, instructions_of, is_changed, value_of
from stilltrue.runtime.waits.orphaned_locks.census import codes_within
from stilltrue.runtime.waits.orphaned_locks.lock_effects import KEEPS, RELEASES, RELEASING, TRIES, dropped_at, effects_in
from stilltrue.runtime.waits.orphaned_locks.lock_paths import FREE, HELD, Paths, lock_in


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
    for index, expression, effect in effects_in(every):
        if effect:
            effects.setdefault(expression, {})[index] = effect
        else:
            unowned.add(expression)
    held: dict[Expression, frozenset[int]] = {}
    sure: dict[Expression, frozenset[int]] = {}
    for expression, those in effects.items():
        balance = balance_of(code, those, (expression,), may_leave_elsewhere=True)
        if balance.unowned:
            unowned.add(expression)
        held[expression] = balance.held
        if balance.sure is not None:
            sure[expression] = balance.sure
    own = frozenset(one for one, those in effects.items() if RELEASES in those.values()) - unowned
    return Uses(frozenset(unowned), own, held, {one: sure[one] for one in own if one in sure})


def balance_of(
    code: CodeType,
    effects: Mapping[int, str],
    expressions: Iterable[Expression],
    *,
    swallowed: bool = True,
    may_leave_elsewhere: bool = False,
) -> Balance:
    """The balance of the ``effects`` of instructions on the single lock that ``expressions`` mean while it is held.

    ``swallowed``: whether the exit of a ``with`` block may swallow an exception. ``may_leave_elsewhere``: it is surely held,
    too, where only paths from elsewhere leave it behind.
    """
    paths = Paths(code, effects)
    found = paths.states(swallowed=swallowed)
    every, states = paths.every, [lock_in(one) for one in found]
    inner = [one for one, state in zip(every, states, strict=True) if state & HELD]
    another = any(is_changed(one, inner) for one in expressions)
    early = any(effect == RELEASES and states[index] & FREE for index, effect in effects.items())
    straight = [lock_in(one) for one in paths.states(failing=False)]
    left = any(one.opname in RETURNS and state & HELD for one, state in zip(every, straight, strict=True))
    leaving = paths.leaving() if left and may_leave_elsewhere else [0] * len(every)
    certain = (index for index, state in enumerate(states) if state == HELD and not found[index] & leaving[index])
    sure = None if left and not may_leave_elsewhere else _where(code, every, certain)
    tried = (index for index, effect in effects.items() if effect == TRIES or effect.startswith(KEEPS))
    return Balance(another or early, _where(code, every, (*_held(states), *tried)), sure)


def leaves_with(code: CodeType, effects: Mapping[int, str]) -> bool:
    """Whether a code object has had exactly one of these ``effects``, all acquiring, wherever it returns."""
    paths = Paths(code, effects)
    states = [lock_in(one) for one in paths.states(failing=False)]
    returns = [state for one, state in zip(paths.every, states, strict=True) if one.opname in RETURNS and state]
    return bool(returns) and all(state == HELD for state in returns) and all(states[index] <= FREE for index in effects)


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


def holds_nothing(frame: FrameType) -> bool:
    """Whether a frame has yet to acquire everything that it, and the functions within it, release."""
    code = frame.f_code
    return releases_only_own(code) and not any(frame.f_lasti in offsets for offsets in (uses_of(code).held or {}).values())


@cached_by_code
def may_hold(code: CodeType) -> bool:
    """Whether a frame of this code may hold what it has acquired without a bracket."""
    return "acquire" in code.co_names and "release" in code.co_names and releases_only_own(code)


@cached_by_code
def _awaited_in(code: CodeType) -> frozenset[Expression]:
    """The expressions that a code object acquires by ``await``."""
    every = instructions_of(code)
    taken = ((index, one) for index, one in enumerate(every) if one.opname in ATTRIBUTES and one.argval == "acquire")
    done = ((expression_before(every, index), dropped_at(every, index)) for index, _ in taken)
    return frozenset(expression for expression, dropped in done if dropped is not None and dropped[1])


@cached_by_code
def codes_ahead(code: CodeType, at: int) -> tuple[CodeType, ...]:
    """The functions within a code object that a frame at this position may still create."""
    every = instructions_of(code)
    flow = ControlFlow(code, every)
    return tuple(every[index].argval for index in sorted(flow.reached([flow.at(at)])) if type(every[index].argval) is CodeType)


def _held(states: Sequence[int]) -> Iterator[int]:
    return (index for index, state in enumerate(states) if state & HELD)


def _where(code: CodeType, every: Sequence[dis.Instruction], indices: Iterable[int]) -> frozenset[int]:
    return frozenset(offset for index in indices for offset in _offsets(code, every, index))


def _offsets(code: CodeType, every: Sequence[dis.Instruction], index: int) -> range:
    """The offsets of a frame at an instruction: during a call it is at the end of the inline cache."""
    end = every[index + 1].offset if index + 1 < len(every) else len(code.co_code)
    return range(every[index].offset, end)
