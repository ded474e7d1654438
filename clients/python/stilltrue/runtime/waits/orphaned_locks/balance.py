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
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any

from stilltrue.runtime.bytecode.instructions import exception_entries_of, is_jump
from stilltrue.runtime.introspection.code_cache import cached_by_code
from stilltrue.runtime.introspection.frames import variables_of
from stilltrue.runtime.look.code.attributes import UNKNOWN
from stilltrue.runtime.look.code.names import ATTRIBUTES
from stilltrue.runtime.waits.holders.try_finally import called_and_dropped, dropped_after
from stilltrue.runtime.waits.holders.with_blocks import (
    Expression,
    expression_before,
    instructions_of,
    is_changed,
    operand_before,
    skip_back,
    value_of,
)
from stilltrue.runtime.waits.orphaned_locks.census import codes_within

RELEASING = frozenset({"release", "release_lock", "__exit__", "__aexit__", "_release_save"})
_JUMPS = frozenset({"JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT", "JUMP_ABSOLUTE"})
RETURNS = frozenset({"RETURN_VALUE", "RETURN_CONST"})
_LEAVES = RETURNS | {"RERAISE", "RAISE_VARARGS"}
_FREE, _HELD = 1, 2
_IF_TRUE = 2
"""How far the bits of a state are shifted if the variable with the result of ``acquire()`` is true."""
_EITHER = _FREE | _HELD
ACQUIRES, MAY_ACQUIRE, RELEASES = "acquires", "may acquire", "releases"
TRIES = "tries"
"""The effect of the jump that tests the result of ``acquire()``."""
KEEPS = "keeps "
"""The effect of keeping the result in a variable, whose name follows."""
_BETWEEN = frozenset({"CACHE", "NOP", "PRECALL", "KW_NAMES", "TO_BOOL", "EXTENDED_ARG"})
_ARGUMENTS = _BETWEEN | {
    *("LOAD_CONST", "LOAD_SMALL_INT", "LOAD_FAST", "LOAD_FAST_BORROW", "LOAD_FAST_LOAD_FAST", "LOAD_GLOBAL", "LOAD_DEREF"),
    *(
        "LOAD_NAME",
        "LOAD_ATTR",
        "LOAD_METHOD",
        "UNARY_NEGATIVE",
        "BINARY_OP",
        "BINARY_SUBSCR",
        "COMPARE_OP",
        "PUSH_NULL",
        "COPY",
        "SWAP",
    ),
    *("FORMAT_VALUE", "FORMAT_SIMPLE", "FORMAT_WITH_SPEC", "CONVERT_VALUE", "BUILD_STRING"),
}
_FINISHES = frozenset({"CALL", "CALL_KW"})
_ABORTS = frozenset({"abort", "abort_with_status"})
_KEEPS_AND_LOADS = "STORE_FAST_LOAD_FAST"


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
    paths = _Paths(code, effects)
    found = paths.states(swallowed=swallowed)
    every, states = paths.every, [_lock_in(one) for one in found]
    inner = [one for one, state in zip(every, states, strict=True) if state & _HELD]
    another = any(is_changed(one, inner) for one in expressions)
    early = any(effect == RELEASES and states[index] & _FREE for index, effect in effects.items())
    straight = [_lock_in(one) for one in paths.states(failing=False)]
    left = any(one.opname in RETURNS and state & _HELD for one, state in zip(every, straight, strict=True))
    leaving = paths.leaving() if left and may_leave_elsewhere else [0] * len(every)
    certain = (index for index, state in enumerate(states) if state == _HELD and not found[index] & leaving[index])
    sure = None if left and not may_leave_elsewhere else _where(code, every, certain)
    tried = (index for index, effect in effects.items() if effect == TRIES or effect.startswith(KEEPS))
    return Balance(another or early, _where(code, every, (*_held(states), *tried)), sure)


def leaves_with(code: CodeType, effects: Mapping[int, str]) -> bool:
    """Whether a code object has had exactly one of these ``effects``, all acquiring, wherever it returns."""
    paths = _Paths(code, effects)
    states = [_lock_in(one) for one in paths.states(failing=False)]
    returns = [state for one, state in zip(paths.every, states, strict=True) if one.opname in RETURNS and state]
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
    done = ((expression_before(every, index), _dropped(every, index)) for index, _ in taken)
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
        for way in (*next_of(every, index, index_of), *handled):
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
        if one.argval == "acquire":
            at, effect = _acquires_at(every, index) if expression else (index, MAY_ACQUIRE)
            yield at, expression, effect
        else:
            done = called_and_dropped(every, index) is not None or _is_left_to_stack(every, index)
            yield index, expression, RELEASES if done and expression and one.argval == "release" else ""


def _is_left_to_stack(every: Sequence[dis.Instruction], attribute: int) -> bool:
    """Whether the method loaded at ``attribute`` is the only argument of a method called ``callback``."""
    operand, call = operand_before(every, attribute), _call_after(every, attribute)
    if operand is None or call is None or operand[1] == 0 or every[call].opname != "CALL" or every[call].arg != 1:
        return False
    called = every[skip_back(every, operand[1] - 1)]
    between = [one for one in every[attribute + 1 : call] if one.opname not in _BETWEEN]
    return called.opname in ATTRIBUTES and called.argval == "callback" and not between


def _acquires_at(every: Sequence[dis.Instruction], attribute: int) -> tuple[int, str]:
    """Where a call of ``acquire()`` has its effect, and which (rule 1)."""
    dropped = _dropped(every, attribute)
    if dropped is not None:
        return dropped[0], ACQUIRES
    call = _call_after(every, attribute)
    return (None if call is None else result_used(every, call)) or (attribute, MAY_ACQUIRE)


def result_used(every: Sequence[dis.Instruction], call: int) -> tuple[int, str] | None:
    """Where the result of a call that acquires a lock is tested or kept in a variable, with that effect; None: neither."""
    at = _after_idle(every, call)
    if at is None:
        return None
    if _tests(every[at]):
        return at, TRIES
    if every[at].opname == "COPY" and every[at].arg == 1:  # of an assignment expression
        at = _after_idle(every, at) or at
    one = every[at]
    if one.opname == _KEEPS_AND_LOADS:
        return at, f"{KEEPS}{one.argval[0]}"
    return (at, f"{KEEPS}{one.argval}") if one.opname == "STORE_FAST" else None


def _dropped(every: Sequence[dis.Instruction], attribute: int) -> tuple[int, bool] | None:
    """As :func:`called_and_dropped`, also as the argument of an awaited ``asyncio.wait_for``."""
    found = called_and_dropped(every, attribute)
    inner = None if found is not None else _call_after(every, attribute)
    operand = operand_before(every, attribute)
    if inner is None or operand is None or every[inner].arg or operand[1] == 0:
        return found
    if every[skip_back(every, operand[1] - 1)].argval != "wait_for":
        return None
    outer = _call_after(every, inner)
    dropped = None if outer is None else dropped_after(every, outer)
    return dropped if dropped is not None and dropped[1] else None


def _call_after(every: Sequence[dis.Instruction], index: int) -> int | None:
    """The next call, if only simple arguments come before it."""
    for later in range(index + 1, len(every)):
        one = every[later]
        if one.opname in _FINISHES:
            return later
        if one.opname not in _ARGUMENTS or one.is_jump_target:
            return None
    return None


def _after_idle(every: Sequence[dis.Instruction], index: int) -> int | None:
    """The next instruction that does something; None if others may lead there."""
    for later in range(index + 1, len(every)):
        if every[later].is_jump_target:
            return None
        if every[later].opname not in _BETWEEN:
            return later
    return None


def _tests(one: dis.Instruction) -> bool:
    """Whether it is a jump that depends on whether a value is true."""
    return one.opname.startswith("POP_JUMP_") and one.opname.endswith(("IF_TRUE", "IF_FALSE"))


def _flag_of(effects: Iterable[str]) -> str:
    """The variable that keeps the result of ``acquire()``; empty: none, or several."""
    names = {one.removeprefix(KEEPS) for one in effects if one.startswith(KEEPS)}
    return names.pop() if len(names) == 1 else ""


def _flags(every: Sequence[dis.Instruction], flag: str, kept: Container[int]) -> dict[int, int | None]:
    """What instructions do to the variable ``flag``, or learn of it, by index.

    1 or 0: it becomes true or false; 2: unknown. None: the jump tests it.
    """
    found: dict[int, int | None] = {}
    for index, one in enumerate(every):
        names = one.argval if isinstance(one.argval, tuple) else (one.argval,)
        if flag in names and one.opname.startswith(("STORE_", "DELETE_")):
            before = every[index - 1] if index and not one.is_jump_target else None
            known = one.opname == "STORE_FAST" and before is not None and before.opname == "LOAD_CONST"
            if index not in kept:
                found[index] = int(bool(before.argval)) if known and before is not None else 2
        elif _tests(one) and not one.is_jump_target:
            loaded = index - 1
            while loaded and every[loaded].opname in _BETWEEN and not every[loaded].is_jump_target:
                loaded -= 1
            if _leaves(every, loaded, flag):
                found[index] = None
    return found


def _leaves(every: Sequence[dis.Instruction], index: int, flag: str) -> bool:
    """Whether an instruction leaves the value of a variable on the stack."""
    one = every[index]
    if one.opname == _KEEPS_AND_LOADS:
        return bool(one.argval[1] == flag)
    if one.opname == "STORE_FAST":
        return bool(one.argval == flag and index and every[index - 1].opname == "COPY" and every[index - 1].arg == 1)
    return one.opname.startswith("LOAD_FAST") and one.argval == flag


class _Paths:
    """The paths through a code object, with the ``effects`` of its instructions on a lock."""

    def __init__(self, code: CodeType, effects: Mapping[int, str]) -> None:
        self.every = every = instructions_of(code)
        self._code, self._effects = code, effects
        self._index_of = {one.offset: index for index, one in enumerate(every)}
        self._aborting = frozenset(_aborting(every)) if not _ABORTS.isdisjoint(code.co_names) else frozenset()
        kept = [index for index, effect in effects.items() if effect.startswith(KEEPS)]
        self._flag = _flag_of(effects.values()) if kept else _tested_before_release(every, effects)
        self._flags = _flags(every, self._flag, kept) if self._flag else {}

    def states(self, *, failing: bool = True, swallowed: bool = True) -> list[int]:
        """For each instruction, whether the lock may be free, held or either before it; 0: it is not reached.

        The lower bits are those if the variable is false, or if there is none. ``failing``: follow exceptions, too;
        ``swallowed``: the exit of a block may swallow one.
        """
        every = self.every
        swallowing = frozenset() if swallowed else frozenset(_swallowing(every))
        entries = exception_entries_of(self._code) if failing else ()
        index_of = self._index_of
        handlers = [[index_of[entry.target] for entry in entries if entry.start <= one.offset < entry.end] for one in every]
        states = [0] * len(every)
        states[0] = _both(_FREE) if self._flag else _FREE
        todo = [0]
        while todo:
            index = todo.pop()
            before = states[index]
            after, ways = self._from(index, before)
            ways = [(way, state) for way, state in ways if index not in swallowing or way == index + 1]
            ways += [(way, before | after) for way in handlers[index]]
            for way, state in ways:
                if states[way] | state != states[way]:
                    states[way] |= state
                    todo.append(way)
        return states

    def leaving(self) -> list[int]:
        """For each instruction, in which states before it a path without exceptions returns with the lock held."""
        every = self.every
        coming: dict[tuple[int, int], set[tuple[int, int]]] = {}
        for index in range(len(every)):
            for state in (_HELD, _HELD << _IF_TRUE):
                for way, after in self._from(index, state)[1]:
                    for one in (_HELD, _HELD << _IF_TRUE):
                        if after & one:
                            coming.setdefault((way, one), set()).add((index, state))
        found = [0] * len(every)
        returns = (index for index, one in enumerate(every) if one.opname in RETURNS)
        todo = [(index, state) for index in returns for state in (_HELD, _HELD << _IF_TRUE)]
        while todo:
            index, state = todo.pop()
            if not found[index] & state:
                found[index] |= state
                todo += coming.get((index, state), ())
        return found

    def _from(self, index: int, before: int) -> tuple[int, list[tuple[int, int]]]:
        """The state after an instruction, and those with which each of the next ones is reached."""
        effect, learns, one = self._effects.get(index, ""), self._flags.get(index, -1), self.every[index]
        after = _with_flag(_after(before, effect, self._flag), learns)
        following = [] if index in self._aborting else next_of(self.every, index, self._index_of)
        return after, [(way, _at_jump(one, after, effect, learns, jumps=way != index + 1)) for way in following]


def _lock_in(state: int) -> int:
    """A state of the lock alone, whatever the variable is."""
    return (state | state >> _IF_TRUE) & _EITHER


def _tested_before_release(every: Sequence[dis.Instruction], effects: Mapping[int, str]) -> str:
    """The variable that the code tests before it releases the lock, if it only sets it to constants; else empty."""
    found = set()
    for index in (index for index, effect in effects.items() if effect == RELEASES):
        before = next((at for at in range(index - 1, -1, -1) if is_jump(every[at]) or every[at].is_jump_target), 0)
        loaded = before - 1
        while loaded > 0 and every[loaded].opname in _BETWEEN:
            loaded -= 1
        if _tests(every[before]) and every[loaded].opname.startswith("LOAD_FAST") and type(every[loaded].argval) is str:
            found.add(every[loaded].argval)
    name = found.pop() if len(found) == 1 else ""
    return name if name and 2 not in _flags(every, name, ()).values() else ""


def _both(state: int) -> int:
    """A state of the lock, whether the variable is true or not."""
    return state | state << _IF_TRUE


def _aborting(every: Sequence[dis.Instruction]) -> Iterator[int]:
    """The calls that end a gRPC call by an exception (rule 3)."""
    for index, one in enumerate(every):
        call = _call_after(every, index) if one.opname in ATTRIBUTES and one.argval in _ABORTS else None
        if call is not None and (one.argval != "abort" or any(each.argval == "StatusCode" for each in every[index:call])):
            yield call


def _swallowing(every: Sequence[dis.Instruction]) -> Iterator[int]:
    """The jumps taken if the exit of a ``with`` block has swallowed an exception."""
    for index, one in enumerate(every):
        if one.opname == "WITH_EXCEPT_START":
            yield next(later for later in range(index, len(every)) if "IF_TRUE" in every[later].opname)


def _after(before: int, effect: str, flag: str) -> int:
    """The state after an effect. The lower bits are those if the variable ``flag`` is false, or if there is none."""
    held, free = _both(_HELD), _both(_FREE)
    if effect == ACQUIRES:
        return before & held | (before & free) << 1
    if effect == RELEASES:
        return before & free | (before & held) >> 1
    if effect.startswith(KEEPS) and flag:
        return before and ((before | before >> _IF_TRUE) & _EITHER) | _HELD << _IF_TRUE
    return before | (before & free) << 1 if effect == MAY_ACQUIRE or effect.startswith(KEEPS) else before


def _with_flag(state: int, becomes: int | None) -> int:
    """The state after the variable has become true or false, or unknown (2)."""
    if becomes is None or becomes < 0:
        return state
    lock = _lock_in(state)
    return (lock, lock << _IF_TRUE, _both(lock))[becomes]


def _at_jump(one: dis.Instruction, after: int, effect: str, learns: int | None, *, jumps: bool) -> int:
    """The state if a jump is taken (``jumps``) or not: what the test tells of the lock or of the variable."""
    if effect != TRIES and learns is not None:
        return after
    is_true = one.opname.endswith("IF_TRUE") == jumps
    if effect == TRIES:
        return _after(after, ACQUIRES, "") if is_true else after
    return after & (_EITHER << _IF_TRUE if is_true else _EITHER)


def next_of(every: Sequence[dis.Instruction], index: int, index_of: Mapping[int, int]) -> Iterator[int]:
    """The instructions that may follow one."""
    one: Any = every[index]
    if one.opname in _LEAVES:
        return
    if is_jump(one):
        yield index_of[one.argval]
    if one.opname not in _JUMPS and index + 1 < len(every):
        yield index + 1
