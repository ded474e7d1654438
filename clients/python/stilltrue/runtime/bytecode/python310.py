"""Translates the bytecode of CPython 3.10 into the form of 3.11.

Rules:

1. Each instruction keeps its offset, so a frame's position means the same in both forms. Those that 3.11 writes in addition
   (``PUSH_EXC_INFO`` before a handler, the jump after ``CHECK_EXC_MATCH``) get the odd offsets between.
2. The exception table follows from the blocks that the code sets up and pops, along all its paths.
3. 3.10 keeps no columns. An expression's position is the range of instructions that compute it, found by following the stack;
   it serves only to tell which expression is part of which. Where the stack is not understood there is no position.
4. What has no counterpart keeps its name, which no reader knows: that is doubt.
"""

from __future__ import annotations

import dis
from collections.abc import Iterator, Sequence
from itertools import groupby
from types import CodeType
from typing import NamedTuple

_OPERATORS = {
    "ADD": "+",
    "SUBTRACT": "-",
    "MULTIPLY": "*",
    "TRUE_DIVIDE": "/",
    "FLOOR_DIVIDE": "//",
    "MODULO": "%",
    "POWER": "**",
    "MATRIX_MULTIPLY": "@",
    "LSHIFT": "<<",
    "RSHIFT": ">>",
    "AND": "&",
    "OR": "|",
    "XOR": "^",
}
_SYMBOLS = {f"BINARY_{name}": sign for name, sign in _OPERATORS.items()} | {
    f"INPLACE_{name}": f"{sign}=" for name, sign in _OPERATORS.items()
}
NAMES = {
    **dict.fromkeys(_SYMBOLS, "BINARY_OP"),
    **dict.fromkeys(("CALL_FUNCTION", "CALL_METHOD", "CALL_FUNCTION_KW"), "CALL"),
    **dict.fromkeys(("SETUP_FINALLY", "SETUP_ASYNC_WITH", "POP_BLOCK"), "NOP"),
    "SETUP_WITH": "BEFORE_WITH",
    "YIELD_FROM": "SEND",
    "GEN_START": "RESUME",
    "DUP_TOP": "COPY",
    "ROT_TWO": "SWAP",
    "JUMP_IF_NOT_EXC_MATCH": "CHECK_EXC_MATCH",
}
"""The names of instructions in 3.11, where they differ."""
_ARGUMENTS = {"DUP_TOP": 1, "ROT_TWO": 2}
_SETUPS = frozenset({"SETUP_FINALLY", "SETUP_WITH", "SETUP_ASYNC_WITH"})
_ENDS = frozenset({"RETURN_VALUE", "RAISE_VARARGS", "RERAISE"})
_ALWAYS_JUMPS = frozenset({"JUMP_FORWARD", "JUMP_ABSOLUTE"})
_CALLS = frozenset({"CALL_FUNCTION", "CALL_FUNCTION_KW", "CALL_FUNCTION_EX"})
_NOP = 9


class Positions(NamedTuple):
    """A range of instructions, in the form of a source position (rule 3)."""

    lineno: int
    end_lineno: int
    col_offset: int
    end_col_offset: int


class Instruction(NamedTuple):
    """An instruction with the fields of ``dis.Instruction``, its line, and its effect on the height of the stack."""

    opname: str
    opcode: int
    arg: int | None
    argval: object
    argrepr: str
    offset: int
    is_jump_target: bool
    positions: Positions | None
    line: int | None
    effect: int


class Entry(NamedTuple):
    """An entry of the exception table; the depth of the stack is unknown."""

    start: int
    end: int
    target: int
    depth: int = 0


def exception_entries(code: CodeType) -> list[Entry]:
    """The exception table of a code object (rule 2); empty for compiled code, which has no instructions."""
    every = list(dis.get_instructions(code))
    if not every:
        return []
    handlers = {one.offset: handler for one, handler in zip(every, _handlers(every, _blocks(every)), strict=True)}
    begun = {handler: handlers[handler + 1] for handler in handlers.values() if handler is not None and handler % 2}
    places = sorted((handlers | begun).items())
    ends = [*(offset for offset, _ in places[1:]), len(code.co_code)]
    found: list[Entry] = []
    for target, group in groupby(zip(places, ends, strict=True), key=lambda place: place[0][1]):
        covered = list(group)
        if target is not None:
            found.append(Entry(covered[0][0][0], covered[-1][1], target))
    return found


def instructions(code: CodeType) -> Iterator[Instruction]:
    """The translated instructions of a code object."""
    every = list(dis.get_instructions(code))
    begins = {one.argval for one in every if one.opname in _SETUPS}
    clauses = begins.union(one.argval for one in every if one.opname == "JUMP_IF_NOT_EXC_MATCH")
    jumped = {one.argval for one in every if _is_jump(one) and one.opname not in _SETUPS}
    starts, called = _follow_stack(every)
    line = None
    for index, one in enumerate(every):
        line = one.starts_line or line
        after = every[index + 1].opname if index + 1 < len(every) else ""
        if one.offset in begins and one.opname != "END_ASYNC_FOR":
            yield Instruction("PUSH_EXC_INFO", _NOP, None, None, "", one.offset - 1, True, None, line, 0)
        begin = starts[index - 1 if after == "YIELD_FROM" else index]  # ``None`` is sent to what is awaited: part of that
        yield Instruction(
            opname=_name_of(one, after, is_clause=one.offset in clauses),
            opcode=_NOP if one.opname in _SETUPS or one.opname == "JUMP_IF_NOT_EXC_MATCH" else one.opcode,
            arg=_ARGUMENTS.get(one.opname, one.arg),
            argval=one.argval,
            argrepr=_SYMBOLS.get(one.opname, f"NULL + {one.argrepr}" if index in called else one.argrepr),
            offset=one.offset,
            is_jump_target=one.is_jump_target and (one.offset in jumped or one.opname == "END_ASYNC_FOR"),
            positions=None if begin is None else Positions(1, 1, begin, index + (after != "YIELD_FROM")),
            line=line,
            effect=dis.stack_effect(one.opcode, one.arg, jump=False),
        )
        if one.opname == "JUMP_IF_NOT_EXC_MATCH":
            jump = dis.opmap["POP_JUMP_IF_FALSE"]
            yield Instruction(
                "POP_JUMP_IF_FALSE", jump, one.arg, one.argval, one.argrepr, one.offset + 1, False, None, line, -1
            )


def _is_jump(one: dis.Instruction) -> bool:
    return one.opcode in dis.hasjrel or one.opcode in dis.hasjabs


def _name_of(one: dis.Instruction, after: str, *, is_clause: bool) -> str:
    if one.opname == "DUP_TOP" and is_clause:  # of the exception, for its comparison with a class
        return "NOP"
    if one.opname == "LOAD_CONST" and after in ("CALL_FUNCTION_KW", "MAKE_FUNCTION"):  # names of arguments, of a function
        return "KW_NAMES" if after == "CALL_FUNCTION_KW" else "NOP"
    if one.opname == "JUMP_ABSOLUTE":
        return "JUMP_BACKWARD" if one.argval <= one.offset else "JUMP_FORWARD"
    return NAMES.get(one.opname, one.opname)


# -- blocks --------------------------------------------------------------------------------------------------------------


def _blocks(every: Sequence[dis.Instruction]) -> list[tuple[int | None, ...]]:
    """For each instruction the blocks around it, outermost first: the offsets of their handlers, None inside a handler."""
    index_of = {one.offset: index for index, one in enumerate(every)}
    found: list[tuple[int | None, ...] | None] = [None] * len(every)
    todo: list[tuple[int, tuple[int | None, ...]]] = [(0, ())]
    while todo:
        index, blocks = todo.pop()
        if found[index] is not None:
            if found[index] != blocks:
                raise ValueError("blocks differ from one path to another")
            continue
        found[index] = blocks
        one = every[index]
        if one.opname in _ENDS:
            continue
        if one.opname in _SETUPS:
            todo += [(index_of[one.argval], (*blocks, None)), (index + 1, (*blocks, one.argval))]
            continue
        after = blocks[:-1] if one.opname in ("POP_BLOCK", "POP_EXCEPT", "END_ASYNC_FOR") else blocks
        if _is_jump(one):
            todo.append((index_of[one.argval], after))
        if one.opname not in _ALWAYS_JUMPS and index + 1 < len(every):
            todo.append((index + 1, after))
    return [blocks or () for blocks in found]


def _handlers(every: Sequence[dis.Instruction], blocks: Sequence[tuple[int | None, ...]]) -> list[int | None]:
    """For each instruction, where the table leads: to the innermost handler, or the ``PUSH_EXC_INFO`` before it."""
    name_at = {one.offset: one.opname for one in every}
    inner = (next((block for block in reversed(those) if block is not None), None) for those in blocks)
    return [None if one is None else one if name_at[one] == "END_ASYNC_FOR" else one - 1 for one in inner]


# -- the stack (rule 3) --------------------------------------------------------------------------------------------------

_Slot = tuple[int, int]
"""The instructions at which a value's expression begins, and which left the value."""
_POPS_AND_PUSHES = {
    **dict.fromkeys(("NOP", "POP_BLOCK", "SETUP_FINALLY", "JUMP_FORWARD", "JUMP_ABSOLUTE", "EXTENDED_ARG"), (0, 0)),
    **dict.fromkeys(("DELETE_FAST", "DELETE_NAME", "DELETE_GLOBAL", "DELETE_DEREF", "GEN_START"), (0, 0)),
    **dict.fromkeys(("POP_TOP", "STORE_FAST", "STORE_NAME", "STORE_GLOBAL", "STORE_DEREF", "DELETE_ATTR"), (1, 0)),
    **dict.fromkeys(("POP_JUMP_IF_TRUE", "POP_JUMP_IF_FALSE", "LIST_APPEND", "LIST_EXTEND", "SET_ADD", "SET_UPDATE"), (1, 0)),
    **dict.fromkeys(("DICT_UPDATE", "DICT_MERGE", "JUMP_IF_TRUE_OR_POP", "JUMP_IF_FALSE_OR_POP"), (1, 0)),
    **dict.fromkeys(
        ("LOAD_ATTR", "GET_ITER", "GET_AITER", "GET_AWAITABLE", "GET_YIELD_FROM_ITER", "YIELD_VALUE", "LIST_TO_TUPLE"), (1, 1)
    ),
    **dict.fromkeys(("COMPARE_OP", "IS_OP", "CONTAINS_OP", "IMPORT_NAME", "YIELD_FROM"), (2, 1)),
    "LOAD_METHOD": (1, 2),
    "IMPORT_FROM": (0, 1),
    "GET_ANEXT": (0, 1),
    "FOR_ITER": (0, 1),
    "MAP_ADD": (2, 0),
    "STORE_ATTR": (2, 0),
    "DELETE_SUBSCR": (2, 0),
    "STORE_SUBSCR": (3, 0),
    "BINARY_SUBSCR": (2, 1),
    **dict.fromkeys(_SYMBOLS, (2, 1)),
}
_COUNTED = {
    "CALL_FUNCTION": (1, 1),
    "CALL_METHOD": (1, 2),
    "CALL_FUNCTION_KW": (1, 2),
    "BUILD_CONST_KEY_MAP": (1, 1),
    **dict.fromkeys(("BUILD_TUPLE", "BUILD_LIST", "BUILD_SET", "BUILD_STRING", "BUILD_SLICE"), (1, 0)),
    "BUILD_MAP": (2, 0),
}
"""Instructions that leave one value and pop as many values as their argument says: how many for each of it, and besides."""
_EXCHANGES = {
    "ROT_TWO": (0, 1),
    "ROT_THREE": (0, 2, 1),
    "ROT_FOUR": (0, 3, 2, 1),
    "DUP_TOP": (0, 0),
    "DUP_TOP_TWO": (1, 0, 1, 0),
}
"""What is on top of the stack afterwards, bottom first: how deep it was."""


def _pops_and_pushes(one: dis.Instruction) -> tuple[int, int] | None:
    arg = one.arg or 0
    known = _POPS_AND_PUSHES.get(one.opname)
    if known is not None:
        return known
    if one.opname in _COUNTED:
        each, besides = _COUNTED[one.opname]
        return each * arg + besides, 1
    if one.opname.startswith(("LOAD_", "UNARY_")):
        return int(one.opname[0] == "U"), 1
    counted = {
        "CALL_FUNCTION_EX": (2 + (arg & 1), 1),
        "MAKE_FUNCTION": (2 + arg.bit_count(), 1),
        "FORMAT_VALUE": (1 + (arg & 4 == 4), 1),
        "UNPACK_SEQUENCE": (1, arg),
    }
    return counted.get(one.opname)


def _follow_stack(every: Sequence[dis.Instruction]) -> tuple[list[int | None], set[int]]:
    """The instruction at which each instruction's expression begins, and the loads of globals that may be called."""
    starts: list[int | None] = [None] * len(every)
    used: dict[int, bool] = {}
    at_target: dict[object, list[_Slot]] = {}
    stack: list[_Slot] = []
    for index, one in enumerate(every):
        if index and every[index - 1].opname in _ENDS | _ALWAYS_JUMPS:
            stack = list(at_target.get(one.offset, ()))
        if one.opname in _EXCHANGES:
            order = _EXCHANGES[one.opname]
            depth = max(order) + 1
            taken, stack = stack[-depth:], stack[:-depth]
            stack += [taken[-1 - deep] for deep in order] if len(taken) == depth else []
            continue
        effect = _pops_and_pushes(one)
        pops, pushes = effect or (0, 0)
        if effect is None or pops > len(stack):
            stack = []
            continue
        taken, below = stack[len(stack) - pops :], stack[: len(stack) - pops]
        starts[index] = begin = taken[0][0] if taken else index
        used.update({by: used.get(by, False) or (not at and one.opname in _CALLS) for at, (_, by) in enumerate(taken)})
        if _is_jump(one):
            keeps = one.opname.endswith("_OR_POP")
            at_target.setdefault(one.argval, stack if keeps else below[:-1] if one.opname == "FOR_ITER" else below)
        stack = below + [(begin, index)] * pushes
    loads = (index for index, one in enumerate(every) if one.opname == "LOAD_GLOBAL")
    return starts, {index for index in loads if used.get(index, True)}
