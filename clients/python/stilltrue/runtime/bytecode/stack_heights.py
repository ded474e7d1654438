"""The number of values on a frame's stack, from its code alone.

Rules:

1. The compiler's table of stack effects gives the height before each instruction, and that of the exception table the height at
   a handler. Code for which two paths disagree is not understood.
2. Python code that is called directly has taken its arguments and the called function over from its caller's stack; a compiled
   function has not: they stay there until it returns. An iterator stays while its next item is made, and the exit of a block
   while it is entered.
"""

from __future__ import annotations

import sys
from types import CodeType
from typing import Any

from stilltrue.runtime.bytecode.instructions import exception_entries_of, instructions, is_jump, opname_at, stack_effect
from stilltrue.runtime.introspection.code_cache import cached_by_code

_NEVER_GOES_ON = frozenset(
    {
        *("JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT", "RETURN_VALUE", "RETURN_CONST"),
        *("RAISE_VARARGS", "RERAISE", "INTERPRETER_EXIT"),
    }
)
_CALLS = frozenset({"CALL", "CALL_KW"})
_ENTERS = frozenset({"BEFORE_WITH"}) if sys.version_info < (3, 12) else frozenset[str]()
"""Where a frame keeps the exit of the block that it enters; a later version has it there only once it has entered."""
_KEPT_AT = _CALLS | {"PRECALL", "CACHE", "FOR_ITER", "CALL_FUNCTION_EX"} | _ENTERS
_SKIPS_CACHES = sys.version_info < (3, 13)
"""Whether a frame that has called Python code stands at the last ``CACHE`` behind the call."""


def kept_in_call(code: CodeType, at: int, *, compiled: bool) -> int | None:
    """The number of stack values that a frame at ``at`` keeps while it calls or iterates (rule 2); None if unknown.

    ``compiled``: it calls no Python code. Otherwise arguments that may be there are left out.
    """
    return _kept(code, at)[compiled]


@cached_by_code
def _kept(code: CodeType, at: int) -> tuple[int | None, int | None]:
    """The numbers in a call of Python code, and in one of compiled code."""
    every = tuple(instructions(code)) if opname_at(code, at) in _KEPT_AT else ()
    index = next((number for number in range(len(every) - 1, -1, -1) if every[number].offset <= at), None)
    heights = heights_of(code) if every else None
    if index is None or heights is None:
        return None, None
    one, is_behind = every[index], opname_at(code, at) == "CACHE"
    calls = index + 1 if one.opname == "PRECALL" and index + 1 < len(every) else index
    before, called = heights.get(one.offset), every[calls]
    if one.opname in _ENTERS:
        return before, before
    if before is None or (called.opname not in _CALLS and one.opname not in ("FOR_ITER", "CALL_FUNCTION_EX")):
        return None, None
    if one.opname == "FOR_ITER":
        return before, None if is_behind else before
    if one.opname == "CALL_FUNCTION_EX":
        return None, before
    at_call = heights.get(called.offset)
    left = None if at_call is None else at_call + stack_effect(called) - 1
    whole = before if calls != index or not _has_precall(every, index) else heights.get(every[index - 1].offset)
    return left, None if is_behind and _SKIPS_CACHES else whole


def _has_precall(every: tuple[Any, ...], index: int) -> bool:
    return index > 0 and every[index - 1].opname == "PRECALL"


@cached_by_code
def heights_of(code: CodeType) -> dict[int, int] | None:
    """By offset, the height of the stack before each instruction that may run; None if the code is not understood."""
    every = tuple(instructions(code))
    index_of = {one.offset: index for index, one in enumerate(every)}
    found: dict[int, int] = {}
    todo = [(0, 0)]
    for entry in exception_entries_of(code):
        if entry.target not in index_of:
            return None
        todo.append((index_of[entry.target], entry.depth + (2 if entry.lasti else 1)))
    while todo:
        index, height = todo.pop()
        if index >= len(every) or height < 0:
            return None
        one = every[index]
        if one.offset in found:
            if found[one.offset] != height:
                return None
            continue
        found[one.offset] = height
        if is_jump(one):
            if one.argval not in index_of:
                return None
            todo.append((index_of[one.argval], height + stack_effect(one, jumps=True)))
        if one.opname not in _NEVER_GOES_ON:
            todo.append((index + 1, height + _effect(one)))
    return found


def _effect(one: Any) -> int:
    """The effect of an instruction that does not jump. A generator goes on with what was sent to it on its stack."""
    return 1 if one.opname == "RETURN_GENERATOR" else stack_effect(one)
