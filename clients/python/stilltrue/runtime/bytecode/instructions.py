"""The only door to :mod:`dis`: the instructions and exception table of a code object, in the form of CPython 3.11 and later.

On 3.10 both are translated (:mod:`~stilltrue.runtime.bytecode.python310`).
"""

from __future__ import annotations

import dis
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import CodeType
from typing import Any, cast

from stilltrue.runtime.bytecode import python310

IS_TRANSLATED = sys.version_info < (3, 11)
RETURNS = frozenset({"RETURN_VALUE", "RETURN_CONST"})
_LEAVES = RETURNS | {"RERAISE", "RAISE_VARARGS"}
_JUMPS = frozenset((*dis.hasjrel, *dis.hasjabs))
_ALWAYS_JUMPS = frozenset({"JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT", "JUMP_ABSOLUTE"})


def instructions(code: CodeType) -> Iterable[dis.Instruction]:
    """The instructions of a code object."""
    if IS_TRANSLATED:
        return cast("Iterable[dis.Instruction]", python310.instructions(code))
    return (_with_names(one, code) if one.opname == "KW_NAMES" else one for one in dis.get_instructions(code))


def _with_names(one: dis.Instruction, code: CodeType) -> dis.Instruction:
    """The instruction that names a call's keywords; :mod:`dis` of CPython 3.11 does not show the names."""
    return one._replace(argval=code.co_consts[one.arg or 0])


def exception_entries_of(code: CodeType) -> Sequence[Any]:
    """The exception table of a code object: entries with ``start``, ``end``, ``target`` (offsets) and ``depth``."""
    found: Any = python310.exception_entries(code) if IS_TRANSLATED else getattr(dis.Bytecode(code), "exception_entries", ())
    return tuple(found)


def opname_at(code: CodeType, at: int) -> str:
    """The name of the instruction at an offset; empty outside the code."""
    name = dis.opname[code.co_code[at]] if 0 <= at < len(code.co_code) else ""
    return python310.NAMES.get(name, name) if IS_TRANSLATED else name


def is_jump(one: Any) -> bool:
    """Whether an instruction may continue elsewhere than at the next one: at the offset ``argval``."""
    return one.opcode in _JUMPS


def following(every: Sequence[Any], index: int, index_of: Mapping[int, int]) -> Iterator[int]:
    """The instructions (indices) that may come next if no exception is raised; ``index_of``: the index by offset."""
    one = every[index]
    if one.opname in _LEAVES:
        return
    if is_jump(one):
        yield index_of[one.argval]
    if one.opname not in _ALWAYS_JUMPS and index + 1 < len(every):
        yield index + 1


def stack_effect(one: Any, *, jumps: bool = False) -> int:
    """By how much an instruction changes the height of the stack if it does not jump, or if it does (``jumps``)."""
    return int(one.effect) if IS_TRANSLATED else dis.stack_effect(one.opcode, one.arg, jump=jumps)


def line_of(one: Any) -> int | None:
    """The source line of an instruction."""
    if IS_TRANSLATED:
        line: int | None = one.line
        return line
    return None if one.positions is None else one.positions.lineno


def is_same_place(one: Any, other: Any) -> bool:
    """Whether two instructions come from the same place in the source; on 3.10, from the same line."""
    if IS_TRANSLATED:
        return line_of(one) is not None and line_of(one) == line_of(other)
    place = one.positions
    if place is None or place.lineno is None or place.col_offset is None:
        return one is other
    return bool(other.positions == place)


def source_position(code: CodeType, at: int) -> Any:
    """The source position of the instruction at an offset; the offset itself if it is unknown, as on 3.10."""
    positions: Any = () if IS_TRANSLATED else code.co_positions()
    found = next((one for index, one in enumerate(positions) if index == max(at, 0) // 2), None)
    return at if found is None or found[0] is None else found
