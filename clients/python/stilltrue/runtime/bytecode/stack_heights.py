"""The number of values on a frame's stack, from its code alone.

Rules:

1. The compiler's table of stack effects gives the height before each instruction, and that of the exception table the height at
   a handler. Code for which two paths disagree is not understood.
2. Python code that the interpreter calls itself has taken its arguments and the called function over from its caller's stack.
   What is called through a compiled function has not: they stay there until it returns. So do an iterator while its next item
   is made, the object of which an attribute or an item is read, and the exit of a block while it is entered, or left by an
   exception.
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
_TAKEN = {"LOAD_ATTR": 1, "LOAD_METHOD": 1, "BINARY_SUBSCR": 2, "CALL_FUNCTION_EX": 3}
"""By other instructions that may call Python code: the number of values that it takes over; ``**options`` are one more."""
_LEAVES = "WITH_EXCEPT_START"
_KEPT_AT = _CALLS | _TAKEN.keys() | {"PRECALL", "CACHE", "FOR_ITER", _LEAVES} | _ENTERS
_IS_NATIVE = sys.version_info >= (3, 11)
"""Whether the instructions are the interpreter's own, not translated: only these have heights."""
_SKIPS_CACHES = sys.version_info < (3, 13)
"""Whether a frame that has called Python code stands at the last ``CACHE`` behind the call."""


def kept_in_call(code: CodeType, at: int, *, compiled: bool) -> int | None:
    """The number of stack values that a frame at ``at`` keeps while it calls or iterates (rule 2); None if unknown.

    ``compiled``: it calls a compiled function, or Python code through one. Otherwise arguments that may be there are left out.
    """
    return _kept(code, at)[compiled]


@cached_by_code
def _kept(code: CodeType, at: int) -> tuple[int | None, int | None]:
    """The numbers in a call of Python code by the interpreter itself, and in one of compiled code."""
    every = tuple(instructions(code)) if _IS_NATIVE and opname_at(code, at) in _KEPT_AT else ()
    index = next((number for number in range(len(every) - 1, -1, -1) if every[number].offset <= at), None)
    heights = heights_of(code) if every else None
    if index is None or heights is None:
        return None, None
    one, is_behind = every[index], opname_at(code, at) == "CACHE"
    calls = index + 1 if one.opname == "PRECALL" and index + 1 < len(every) else index
    before, called = heights.get(one.offset), every[calls]
    if one.opname in _ENTERS or one.opname == _LEAVES:
        return before, before
    if before is None or (called.opname not in _CALLS and one.opname not in _TAKEN and one.opname != "FOR_ITER"):
        return None, None
    if one.opname == "FOR_ITER":
        return before, None if is_behind else before
    if one.opname in _TAKEN:
        return before - _TAKEN[one.opname] - has_options(code, one.offset), None if is_behind else before
    at_call = heights.get(called.offset)
    left = None if at_call is None else at_call + stack_effect(called) - 1
    whole = before if calls != index or not _has_precall(every, index) else heights.get(every[index - 1].offset)
    return left, None if is_behind and _SKIPS_CACHES else whole


@cached_by_code
def has_options(code: CodeType, at: int) -> bool:
    """Whether ``at`` is a call ``function(*arguments, **options)``."""
    if opname_at(code, at) != "CALL_FUNCTION_EX":
        return False
    return any(one.offset == at and bool((one.arg or 0) & 1) for one in instructions(code))


@cached_by_code
def arguments_of(code: CodeType, at: int) -> int | None:
    """The number of arguments of the call at ``at``; None if it is no call, or has a star."""
    called = (one for one in instructions(code) if one.offset == at and one.opname == "CALL")
    return next((one.arg for one in called), None)


@cached_by_code
def leaves_block(code: CodeType, at: int) -> bool:
    """Whether the call at ``at`` is that of a block's exit without an exception: below its arguments, ``None`` three times."""
    every = [one for one in instructions(code) if one.offset <= at and one.opname != "PRECALL"]
    called, before = every[-1:], every[-4:-1]
    if opname_at(code, at) not in ("CALL", "PRECALL") or len(before) < 3:
        return False
    return called[0].arg == 2 and all(one.opname == "LOAD_CONST" and one.argval is None for one in before)


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
