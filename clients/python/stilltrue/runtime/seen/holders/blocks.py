"""Which objects a frame's ``with`` blocks are for, and which lock a frame is about to take.

Rules:

1. A frame keeps on its stack how each of its blocks is left, and of a method it is known whose it is. Python shows that of
   suspended frames; of others it is read where that can be done (:mod:`~stilltrue.runtime.compat.kept_values`).
2. Elsewhere it is read from the bytecode: an expression is understood where it reads names, attributes and items only
   (``lock``, ``self._lock``, ``locks[key]``); of any other (``self.lock_for(key)``) nothing is said.
"""

from __future__ import annotations

import dis
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import BuiltinMethodType, CodeType, FrameType, MethodType
from typing import Any

from stilltrue.runtime import compat
from stilltrue.runtime.introspection.by_code import kept_by_code
from stilltrue.runtime.introspection.frames import variables_of
from stilltrue.runtime.look.code.attributes import UNKNOWN, attribute_of
from stilltrue.runtime.look.code.names import ATTRIBUTES, STORES, VARIABLES

METHODS = frozenset({MethodType, BuiltinMethodType})
EXITS = frozenset({"__exit__", "__aexit__"})
_ENTERS = frozenset({"BEFORE_WITH", "BEFORE_ASYNC_WITH", "LOAD_SPECIAL"})
SHUFFLES = frozenset({"LOAD_SPECIAL", "SWAP", "COPY", "PUSH_NULL", "CACHE", "NOP", "PRECALL"})
_CONSTANTS = frozenset({"LOAD_CONST", "LOAD_SMALL_INT", "LOAD_CONST_IMMORTAL"})
_CALLS = frozenset({"CALL"})
_ENTERING = (SHUFFLES - _ENTERS) | {
    *("CALL", "GET_AWAITABLE", "LOAD_CONST", "SEND", "YIELD_VALUE", "RESUME", "JUMP_BACKWARD_NO_INTERRUPT", "END_SEND"),
}
"""What comes after a block's ``__exit__`` is known, until its ``__enter__`` has returned."""
_MAKES = _CALLS | {"CALL_KW", "CALL_FUNCTION_EX"}
_TAKES = _CALLS | {"BEFORE_WITH"}
_STORES = STORES | {"STORE_ATTR", "DELETE_FAST"}
_KEYS = (str, int, bytes, bool, type(None))
_LENGTH_MAX = 16
Expression = tuple[tuple[str, Any], ...]
"""Instructions in their order: ``("name", x)``, ``("attribute", x)``, ``("constant", x)``, ``("item", None)``."""


def blocks_of(frame: FrameType) -> Iterator[Any]:
    """What the ``with`` blocks are for that a frame stands in, as far as that is known."""
    exits = exits_of(frame)
    yield from (one.__self__ for one in exits if one is not None)
    yield from named_blocks_of(frame, exits)


def exits_of(frame: FrameType) -> list[Any]:
    """How the ``with`` blocks are left that a frame stands in: methods, and None where that is unknown (rule 1)."""
    at = frame.f_lasti
    kept = [compat.kept_at(frame, at, one.depth) for one in blocks_at(frame.f_code, at)]
    return [_exit(one) for one in kept]


def _exit(kept: Any) -> Any:
    """A method by which a block is left, or None."""
    return kept if type(kept) in METHODS and kept.__name__ in EXITS else None


def named_blocks_of(frame: FrameType, exits: Sequence[Any]) -> Iterator[Any]:
    """What those blocks are for of which it is not known how they are left, as far as the code says so (rule 2)."""
    blocks = zip(blocks_at(frame.f_code, frame.f_lasti), exits, strict=False)
    within = [block.expression for block, left in blocks if left is None and block.expression]
    names = variables_of(frame) if within else {}
    values = (value_of(one, names, frame.f_globals) for one in within)
    yield from (one for one in values if one is not UNKNOWN)


def depth_of(frame: FrameType) -> int:
    """How many ``with`` blocks a frame stands in: those that it is about to enter or to leave do not count."""
    return len(blocks_at(frame.f_code, frame.f_lasti))


def taken_at(frame: FrameType) -> Any:
    """On what a frame enters a ``with`` block, or calls ``acquire()`` without arguments, just now; None if it does not."""
    at = frame.f_lasti
    expression = _taken_at(frame.f_code, at)
    value = value_of(expression, variables_of(frame), frame.f_globals) if expression else UNKNOWN
    if value is not UNKNOWN:
        return value
    depth = _entered_by(frame.f_code, at)
    kept = None if depth is None else compat.kept_at(frame, at, depth)
    left = _exit(kept)
    return kept if left is None else left.__self__


@kept_by_code
def instructions_of(code: CodeType) -> tuple[dis.Instruction, ...]:
    """The instructions of a code."""
    return tuple(dis.get_instructions(code))


def exception_entries_of(code: CodeType) -> Sequence[Any]:
    """Which instructions of a code have which handler."""
    found: Sequence[Any] = getattr(dis.Bytecode(code), "exception_entries", ())
    return found


@kept_by_code
def _entered_by(code: CodeType, at: int) -> int | None:
    """Where on the stack it is kept what is entered by the instruction of a ``with`` at which a frame stands."""
    if not 0 <= at < len(code.co_code) or dis.opname[code.co_code[at]] != "BEFORE_WITH":
        return None
    begins = next((one.offset for one in instructions_of(code) if one.offset > at), None)
    return next((one.depth - 1 for one in exception_entries_of(code) if one.start == begins), None)


@kept_by_code
def _taken_at(code: CodeType, at: int) -> Expression:
    name = dis.opname[code.co_code[at]] if 0 <= at < len(code.co_code) else ""
    if name not in _TAKES or (name in _CALLS and "acquire" not in code.co_names and sys.version_info < (3, 14)):
        return ()
    every = instructions_of(code)
    index = next(number for number, one in enumerate(every) if one.offset == at)
    one = every[index]
    if one.opname == "BEFORE_WITH":
        return expression_before(every, index)
    if one.opname not in _CALLS or one.arg:
        return ()
    before = skip_back(every, index - 1)
    if every[index - 1].opname == "LOAD_SPECIAL":
        return expression_before(every, before + 1)
    called = every[before]
    return expression_before(every, before) if called.opname in ATTRIBUTES and called.argval == "acquire" else ()


def made_at(frame: FrameType) -> tuple[Expression, ...]:
    """For the ``with`` blocks in which a frame stands and that are not understood, what is called to make their objects.

    Empty where that is not understood either.
    """
    every = zip(_made_at(frame.f_code, frame.f_lasti), exits_of(frame), strict=False)
    return tuple(made for made, left in every if made is not None and left is None)


def is_entering(frame: FrameType) -> bool:
    """Whether a frame is in the middle of entering a ``with`` or ``async with`` block: it keeps how that is left."""
    return _is_entering(frame.f_code, frame.f_lasti)


@kept_by_code
def _is_entering(code: CodeType, at: int) -> bool:
    before = [one for one in instructions_of(code) if one.offset <= at]
    while before and before[-1].opname in _ENTERING:
        before.pop()
    return bool(before) and before[-1].opname in _ENTERS


@kept_by_code
def entered_in(code: CodeType) -> frozenset[Expression]:
    """What the ``with`` blocks of a code are for, as far as that is understood."""
    every = instructions_of(code)
    found = (expression_before(every, index) for index, one in enumerate(every) if one.opname in _ENTERS)
    return frozenset(one for one in found if one)


@dataclass(frozen=True, slots=True)
class _Block:
    """A block in which a frame stands: the instruction that enters it (0: there may be several), and what it is for.

    ``expression`` is empty if it is not understood; ``depth``: where on the stack it is kept how the block is left.
    """

    entered: int
    expression: Expression
    depth: int


@kept_by_code
def blocks_at(code: CodeType, at: int) -> tuple[_Block, ...]:
    """The blocks in which a frame of this code stands at an instruction, the outermost first."""
    every = instructions_of(code)
    found = []
    for entered, inner, depth in _entered_at(code, at):
        expression = expression_before(every, entered) if entered else ()
        found.append(_Block(entered, () if is_changed(expression, inner) else expression, depth))
    return tuple(found)


@kept_by_code
def _made_at(code: CodeType, at: int) -> tuple[Expression | None, ...]:
    """For each block what is called to make its object; None if it is understood without that."""
    every = instructions_of(code)
    blocks = blocks_at(code, at)
    return tuple(None if one.expression else _called_before(every, one.entered) if one.entered else () for one in blocks)


def _entered_at(code: CodeType, at: int) -> Iterator[tuple[int, list[dis.Instruction], int]]:
    """For each block, the instruction that enters it (0: there may be several), those within, and its place on the stack."""
    entries = exception_entries_of(code)
    if not entries:
        return
    every = instructions_of(code)
    index_of = {one.offset: index for index, one in enumerate(every)}
    for target in handlers_of(entries, at):
        handler = index_of.get(target, 0)
        if "WITH_EXCEPT_START" not in [one.opname for one in every[handler : handler + 3]]:
            continue
        covered = [entry for entry in entries if entry.target == target]
        first = index_of[min(entry.start for entry in covered)]
        entered = next((index for index in range(first - 1, -1, -1) if every[index].opname in _ENTERS), 0)
        begins = [index_of[entry.start] for entry in covered]
        several = sum(index > 0 and every[index - 1].opname in _ENTERS for index in begins) > 1
        inner = [one for one in every[first:] if any(entry.start <= one.offset < entry.end for entry in covered)]
        yield 0 if several else entered, inner, covered[0].depth - 1


def _called_before(every: Sequence[dis.Instruction], end: int) -> Expression:
    """What is called to make the value on top of the stack before the instruction ``end``; empty if it is not understood."""
    last = skip_back(every, end - 1)
    if every[last].opname not in _MAKES:
        return ()
    height, calls, index = 1, 0, last
    while index >= 0:
        one = every[index]
        calls += one.opname in _MAKES
        if one.is_jump_target or calls > 1:
            return ()
        height -= dis.stack_effect(one.opcode, one.arg, jump=False)
        if not height:
            break
        index -= 1
    found: list[tuple[str, Any]] = []
    for one in every[max(index, 0) : last]:
        if one.opname in VARIABLES and not found and isinstance(one.argval, str):
            found.append(("name", one.argval))
        elif one.opname in ATTRIBUTES and found:
            found.append(("attribute", str(one.argval)))
        elif one.opname not in SHUFFLES:
            break
    return tuple(found)


def handlers_of(entries: Sequence[Any], at: int) -> list[int]:
    """Where an exception goes that is raised at an instruction, and from there, outermost first."""
    found: list[int] = []
    target: int | None = at
    while target is not None:
        target = next((entry.target for entry in entries if entry.start <= target < entry.end), None)
        if target is None or target in found:
            break
        found.append(target)
    return found[::-1]


def is_changed(expression: Expression, inner: Sequence[dis.Instruction]) -> bool:
    """Whether the code of a block itself sets a name or attribute by which its object was found."""
    names = {what for kind, what in expression if kind in ("name", "attribute")}
    return any(one.opname in _STORES and one.argval in names for one in inner)


def skip_back(every: Sequence[dis.Instruction], index: int) -> int:
    """The last instruction up to ``index`` that does more than move values on the stack."""
    while index > 0 and every[index].opname in SHUFFLES:
        index -= 1
    return index


def expression_before(every: Sequence[dis.Instruction], end: int) -> Expression:
    """The expression whose value is on top of the stack before the instruction ``end``; empty if it is not understood."""
    found = operand_before(every, end)
    return () if found is None else found[0]


def operand_before(every: Sequence[dis.Instruction], end: int) -> tuple[Expression, int] | None:
    """The same, with the instruction at which it begins; None if it is not understood."""
    found: list[tuple[str, Any]] = []
    needed = 1
    if every[end].is_jump_target:  # one of several values
        return None
    for index in range(skip_back(every, end - 1), -1, -1):
        one = every[index]
        if one.opname in SHUFFLES:
            continue
        if len(found) >= _LENGTH_MAX or (one.is_jump_target and needed > 1):
            return None
        if one.opname in ATTRIBUTES:
            found.append(("attribute", str(one.argval)))
        elif one.opname in VARIABLES and isinstance(one.argval, str):
            found.append(("name", one.argval))
            needed -= 1
        elif one.opname in _CONSTANTS:
            found.append(("constant", one.argval))
            needed -= 1
        elif one.opname == "BINARY_SUBSCR" or (one.opname == "BINARY_OP" and one.argrepr == "[]"):
            found.append(("item", None))
            needed += 1
        else:
            return None
        if not needed:
            return tuple(reversed(found)), index
    return None


def value_of(expression: Expression, names: Mapping[str, Any], others: Mapping[str, Any]) -> Any:
    """The value of an expression, found without running anybody's code."""
    stack: list[Any] = []
    for kind, what in expression:
        if kind == "name":
            stack.append(names.get(what, others.get(what, UNKNOWN)))
        elif kind == "constant":
            stack.append(what)
        elif kind == "attribute":
            stack.append(_attribute(stack.pop(), what))
        else:
            key = stack.pop()
            stack.append(_item(stack.pop(), key))
    return stack[-1] if len(stack) == 1 else UNKNOWN


def _attribute(thing: Any, name: str) -> Any:
    if thing is UNKNOWN:
        return UNKNOWN
    found = UNKNOWN if issubclass(type(thing), type) else attribute_of(thing, name)
    if found is not UNKNOWN:
        return found
    kinds = type.mro(thing) if type(thing) is type else type(thing).__mro__
    inherited = next((kind.__dict__[name] for kind in kinds if name in kind.__dict__), UNKNOWN)
    return UNKNOWN if hasattr(type(inherited), "__get__") else inherited


def _item(container: Any, key: Any) -> Any:
    if not _is_key(key):
        return UNKNOWN
    if issubclass(type(container), dict):
        return dict.get(container, key, UNKNOWN)
    if type(container) in (list, tuple) and type(key) is int and -len(container) <= key < len(container):
        return container[key]
    return UNKNOWN


def _is_key(key: Any) -> bool:
    return type(key) in _KEYS or (type(key) is tuple and all(map(_is_key, key)))
