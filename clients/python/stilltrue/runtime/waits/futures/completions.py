"""Finds the futures that a frame is bound to complete, from its bytecode.

Rules:

1. ``set_result()`` and ``set_exception()`` complete the object of an expression: a variable, its attribute or item. Code that
   mentions them in another way (``call_soon(future.set_result, 1)``), or ``InvalidStateError``, is not understood: others may
   complete it.
2. A frame is bound to complete an expression's object if each path from its position does so before it returns or sets one of
   the expression's names; exceptions aside. So code that asks first whether the future is done is bound to nothing. Like a
   party in a ``with`` block of a lock, a bound frame would fail if another party had completed the future meanwhile.
3. A generator may never be resumed, so it is bound to nothing.
"""

from __future__ import annotations

import inspect
from collections.abc import Container, Iterator, Mapping, Sequence
from types import CodeType, FrameType
from typing import Any

from stilltrue.runtime.bytecode.instructions import RETURNS, following, is_jump, stack_effect
from stilltrue.runtime.introspection.code_cache import cached_by_code
from stilltrue.runtime.introspection.frames import variables_of
from stilltrue.runtime.introspection.origins import is_application
from stilltrue.runtime.look.code.attributes import UNKNOWN
from stilltrue.runtime.look.code.names import ATTRIBUTES, CALLING
from stilltrue.runtime.waits.ending_operations import COMPLETING
from stilltrue.runtime.waits.holders.with_blocks import Expression, expression_before, instructions_of, is_changed, value_of

_DOUBTING = COMPLETING | {"InvalidStateError"}
_GENERATOR = inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR


@cached_by_code
def may_complete(code: CodeType) -> bool:
    """Whether a frame of this code may be bound to complete anything."""
    return is_application(code) and bool(completions_of(code))


def bound_to_complete(frame: FrameType) -> Iterator[Any]:
    """The objects that a frame is bound to complete (rule 2), futures or not."""
    code = frame.f_code
    bound = _bound_at(code, frame.f_lasti)
    names = variables_of(frame) if bound else {}
    for expression in bound:
        value = value_of(expression, names, frame.f_globals)
        if value is not UNKNOWN:
            yield value


@cached_by_code
def completions_of(code: CodeType) -> Mapping[Expression, frozenset[int]]:
    """The instructions that complete something, by expression; none if the code is not understood (rules 1 and 3)."""
    if COMPLETING.isdisjoint(code.co_names) or "InvalidStateError" in code.co_names or code.co_flags & _GENERATOR:
        return {}
    if not _DOUBTING.isdisjoint(one for one in code.co_consts if type(one) is str):
        return {}
    every = instructions_of(code)
    found: dict[Expression, set[int]] = {}
    for index, one in enumerate(every):
        if one.argval not in COMPLETING:
            continue
        expression = expression_before(every, index) if one.opname in ATTRIBUTES else ()
        call = call_of(every, index) if expression else None
        if call is None:
            return {}
        found.setdefault(expression, set()).add(call)
    return {expression: frozenset(calls) for expression, calls in found.items()}


@cached_by_code
def _bound_at(code: CodeType, at: int) -> tuple[Expression, ...]:
    every = instructions_of(code)
    here = max((index for index, one in enumerate(every) if one.offset <= at), default=-1)
    done = completions_of(code).items()
    return tuple(one for one, calls in done if here >= 0 and _surely_reaches(every, here, one, calls))


def _surely_reaches(every: Sequence[Any], here: int, expression: Expression, calls: frozenset[int]) -> bool:
    """Whether every path from an instruction completes the expression's object (rule 2)."""
    completed = False
    for index in paths_from(every, here, calls):
        if index in calls:
            completed = True
        elif every[index].opname in RETURNS or is_changed(expression, [every[index]]):
            return False
    return completed


def paths_from(every: Sequence[Any], here: int, ends: Container[int]) -> Iterator[int]:
    """The instructions on all paths that begin after one, up to ``ends``; exceptions aside."""
    index_of = {one.offset: index for index, one in enumerate(every)}
    todo, seen = list(following(every, here, index_of)), set[int]()
    while todo:
        index = todo.pop()
        if index not in seen:
            seen.add(index)
            yield index
            if index not in ends:
                todo.extend(following(every, index, index_of))


def call_of(every: Sequence[Any], mention: int) -> int | None:
    """Where the function or method loaded at an instruction is called; None if there are branches before, or no call."""
    index_of = {one.offset: index for index, one in enumerate(every)}
    index, height = mention + 1, (every[mention].opname in ATTRIBUTES) + stack_effect(every[mention])
    while index < len(every):
        one = every[index]
        if one.opname == "SEND" and is_jump(one):  # of an ``await``
            height += stack_effect(one, jumps=True)
            index = index_of[one.argval]
            continue
        if is_jump(one) or height < 1:
            return None
        height += stack_effect(one)
        if height == 1:
            return index if one.opname in CALLING else None
        index += 1
    return None
