"""Finds the locks that a frame holds by ``lock.acquire()`` and ``finally: lock.release()``, read from its bytecode.

Rules:

1. A bracket is ``acquire()`` as a separate statement, without a timeout (awaited or not), then a ``try`` whose ``finally``
   unconditionally calls ``release()`` on the same expression. There is no branch between the two.
2. A frame between that ``acquire()`` and that ``finally`` holds the expression's object, if its code does not set any of the
   expression's names meanwhile, and neither it nor a function within it mentions ``release`` elsewhere.
3. Code that mentions ``release`` only in brackets releases what it has acquired itself, and nothing else.
"""

from __future__ import annotations

import dis
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any

from stilltrue.runtime.bytecode.instructions import exception_entries_of, is_jump, is_same_place
from stilltrue.runtime.introspection.code_cache import cached_by_code
from stilltrue.runtime.introspection.frames import variables_of
from stilltrue.runtime.look.code.attributes import UNKNOWN
from stilltrue.runtime.look.code.names import ATTRIBUTES
from stilltrue.runtime.waits.holders.acquire_calls import endless_call
from stilltrue.runtime.waits.holders.with_blocks import (
    SHUFFLES,
    Expression,
    expression_before,
    handlers_of,
    instructions_of,
    is_changed,
    value_of,
)

_ACQUIRE, _RELEASE = "acquire", "release"
_AWAITS = frozenset({"GET_AWAITABLE", "LOAD_CONST", "SEND", "YIELD_VALUE", "RESUME", "JUMP_BACKWARD_NO_INTERRUPT", "END_SEND"})
_IDLE = frozenset({"NOP", "CACHE"})
_LEAVES = frozenset({"RETURN_VALUE", "RETURN_CONST", "RERAISE", "RAISE_VARARGS", "RETURN_GENERATOR"})
_BETWEEN_MAX = 60
"""Instructions between ``acquire()`` and the beginning of the ``try``."""


@dataclass(frozen=True, slots=True)
class _Bracket:
    """The expression acquired (``awaited`` or not), the offsets of the ``acquire()`` and the ``try``, and the ``finally``.

    ``mentions``: the instructions that mention ``release`` in this bracket.
    """

    expression: Expression
    awaited: bool
    taken: int
    begins: int
    handler: int
    mentions: frozenset[int]


def held_by_try_finally(frame: FrameType) -> Iterator[tuple[Any, bool]]:
    """The objects that a frame holds by brackets (rule 2), each with whether it awaited ``acquire()``."""
    within = _brackets_at(frame.f_code, frame.f_lasti) if may_hold_by_try_finally(frame.f_code) else ()
    if within:
        names = variables_of(frame)
        for bracket in within:
            value = value_of(bracket.expression, names, frame.f_globals)
            if value is not UNKNOWN:
                yield value, bracket.awaited


@cached_by_code
def may_hold_by_try_finally(code: CodeType) -> bool:
    """Whether a frame of this code may hold anything by a bracket."""
    return bool(_brackets(code)) and releases_only_in_finally(code)


@cached_by_code
def releases_only_in_finally(code: CodeType) -> bool:
    """Rule 3."""
    if any(_is_named_in(one) for one in code.co_consts):
        return False
    if _RELEASE not in (*code.co_names, *code.co_varnames, *code.co_freevars, *code.co_cellvars):
        return True
    known = frozenset[int]().union(*(one.mentions for one in _brackets(code)))
    every = instructions_of(code)
    return all(index in known for index, one in enumerate(every) if _names_release(one))


def has_released_nothing_else(frame: FrameType) -> bool:
    """Whether a frame has yet to acquire everything that it releases."""
    code = frame.f_code
    return releases_only_in_finally(code) and all(frame.f_lasti < one.taken for one in _brackets(code))


def _is_named_in(constant: object) -> bool:
    """Whether a nested function may release something unbracketed, or a string, perhaps for ``getattr``, names ``release``."""
    return constant == _RELEASE or (isinstance(constant, CodeType) and not releases_only_in_finally(constant))


def _names_release(one: dis.Instruction) -> bool:
    return one.argval == _RELEASE or (isinstance(one.argval, tuple) and _RELEASE in one.argval)


@cached_by_code
def _brackets_at(code: CodeType, at: int) -> tuple[_Bracket, ...]:
    """The brackets around an instruction, outermost first."""
    handlers = handlers_of(exception_entries_of(code), at)
    within = [one for one in _brackets(code) if one.handler in handlers or one.taken <= at < one.begins]
    return tuple(sorted(within, key=lambda one: one.taken))


@cached_by_code
def _brackets(code: CodeType) -> tuple[_Bracket, ...]:
    """All brackets of a code object."""
    if _ACQUIRE not in code.co_names or _RELEASE not in code.co_names:
        return ()
    every = instructions_of(code)
    entries = exception_entries_of(code)
    index_of = {one.offset: index for index, one in enumerate(every)}
    found = []
    for handler in dict.fromkeys(entry.target for entry in entries):
        covered = [entry for entry in entries if handler in handlers_of(entries, entry.start)]
        first = index_of[min(entry.start for entry in covered)]
        inner = [one for one in every[first:] if one.offset < max(entry.end for entry in covered)]
        for mention in _released_by(every, index_of[handler]):
            expression = expression_before(every, mention)
            taken = _acquired_before(every, first, expression) if expression else None
            if taken is None:
                continue
            dropped, awaited = taken
            elsewhere = _is_entered_elsewhere(every, entries, dropped, first, handler)
            if elsewhere or is_changed(expression, [*every[dropped:first], *inner]):
                continue
            where = _copies(every, mention, expression)
            found.append(_Bracket(expression, awaited, every[dropped].offset, every[first].offset, handler, where))
    return tuple(found)


def _released_by(every: Sequence[dis.Instruction], handler: int) -> Iterator[int]:
    """Where a ``finally`` mentions ``release`` and unconditionally calls it; nothing for any other kind of handler."""
    if every[handler].opname != "PUSH_EXC_INFO" or every[handler + 1].opname == "POP_TOP":
        return
    for index in range(handler + 1, len(every)):
        one = every[index]
        if (
            one.opname in _LEAVES
            or one.is_jump_target
            or is_jump(one)
            or one.opname in ("CHECK_EXC_MATCH", "WITH_EXCEPT_START", "BEFORE_WITH")
        ):
            return
        if one.opname in ATTRIBUTES and one.argval == _RELEASE and called_and_dropped(every, index) is not None:
            yield index


def _acquired_before(every: Sequence[dis.Instruction], first: int, expression: Expression) -> tuple[int, bool] | None:
    """Where the result of ``acquire()`` is dropped before the ``try`` at ``first``, and whether it was awaited."""
    for index in range(first - 1, max(0, first - _BETWEEN_MAX), -1):
        one = every[index]
        if one.opname in ATTRIBUTES and one.argval == _ACQUIRE and expression_before(every, index) == expression:
            return called_and_dropped(every, index)
        if _names_release(one) or one.opname in _LEAVES:
            return None
    return None


def _is_entered_elsewhere(
    every: Sequence[dis.Instruction], entries: Sequence[Any], dropped: int, first: int, handler: int
) -> bool:
    """Whether control may reach the ``try``, or the code before it, without passing that ``acquire()``."""
    begins, ends = every[dropped].offset, every[first].offset
    if any(map(is_jump, every[dropped:first])) or any(begins <= entry.target <= ends for entry in entries):
        return True
    for one in every:
        if is_jump(one) and begins <= one.argval <= ends:
            awaits = one.opname == "SEND" and one.argval == begins
            if not awaits and (one.argval != ends or handler not in handlers_of(entries, one.offset)):
                return True
    return False


def called_and_dropped(every: Sequence[dis.Instruction], attribute: int) -> tuple[int, bool] | None:
    """Where the result of the method loaded at ``attribute`` is dropped, and whether it is awaited first.

    None if the method is called with arguments or not at all, or if its result is used. ``acquire()`` may have arguments that
    tell it to wait.
    """
    if every[attribute].argval == _ACQUIRE:
        endless = endless_call(every, attribute)
        return None if endless is None else dropped_after(every, endless)
    call = attribute + 1
    while every[call].opname in SHUFFLES:
        call += 1
    return dropped_after(every, call) if every[call].opname == "CALL" and not every[call].arg else None


def dropped_after(every: Sequence[dis.Instruction], call: int) -> tuple[int, bool] | None:
    """Where the result of a call is dropped, and whether it is awaited first; None if it is used."""
    index = call + 1
    while every[index].opname in _IDLE or every[index].opname in _AWAITS:
        index += 1
    awaited = every[call + 1].opname == "GET_AWAITABLE"
    if every[index].opname != "POP_TOP" or (index > call + 1) != awaited:
        return None
    return index, awaited


def _copies(every: Sequence[dis.Instruction], mention: int, expression: Expression) -> frozenset[int]:
    """All copies of the same statement: the compiler emits a ``finally`` once for each way out."""
    return frozenset(
        index
        for index, one in enumerate(every)
        if one.argval == _RELEASE and is_same_place(one, every[mention]) and expression_before(every, index) == expression
    )
