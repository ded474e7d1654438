"""Finds the objects of a frame's ``with`` blocks, and the lock that a frame is about to acquire.

Rules:

1. A frame keeps the exit method of each of its blocks on its value stack, and the method knows its object. Python shows the
   stacks of suspended frames; others are read if possible (:mod:`~stilltrue.runtime.compat.value_stack`).
2. Otherwise the object is read from the bytecode: an expression is understood if it only reads names, attributes and items
   (``lock``, ``self._lock``, ``locks[key]``); any other (``self.lock_for(key)``) is unknown.
"""

from __future__ import annotations

import dis
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import CodeType, FrameType, MethodType
from typing import Any

from stilltrue.runtime import compat
from stilltrue.runtime.bytecode.instructions import exception_entries_of, instructions, opname_at, stack_effect
from stilltrue.runtime.introspection.code_cache import cached_by_code
from stilltrue.runtime.introspection.frames import variables_of
from stilltrue.runtime.look.code.attributes import UNKNOWN, attribute_of
from stilltrue.runtime.look.code.names import ATTRIBUTES, STORES, VARIABLES
from stilltrue.runtime.waits.holders.acquire_calls import endless_call, lock_waited_for, method_called_at

METHODS = compat.COMPILED_FUNCTIONS | {MethodType}
EXITS = frozenset({"__exit__", "__aexit__"})
_ENTERS = frozenset({"BEFORE_WITH", "BEFORE_ASYNC_WITH", "LOAD_SPECIAL"})
SHUFFLES = frozenset({"LOAD_SPECIAL", "SWAP", "COPY", "PUSH_NULL", "CACHE", "NOP", "PRECALL"})
_CONSTANTS = frozenset({"LOAD_CONST", "LOAD_SMALL_INT", "LOAD_CONST_IMMORTAL"})
_CALLS = frozenset({"CALL"})
_ENTERING = (SHUFFLES - _ENTERS) | {
    *("CALL", "GET_AWAITABLE", "LOAD_CONST", "SEND", "YIELD_VALUE", "RESUME", "JUMP_BACKWARD_NO_INTERRUPT", "END_SEND")
}
"""Instructions between the load of a block's ``__exit__`` and the return of its ``__enter__``."""
_MAKES = _CALLS | {"CALL_KW", "CALL_FUNCTION_EX"}
_CALLED_AT = _CALLS | {"CALL_KW", "PRECALL"}
"""Where a frame may be in a call: CPython 3.11 makes some of its specialized calls one instruction earlier."""
_ACQUIRE = _CALLED_AT | {"BEFORE_WITH"}
_ACQUIRING = frozenset({"acquire", "__enter__"})
_STORES = STORES | {"STORE_ATTR", "DELETE_FAST"}
_KEYS = (str, int, bytes, bool, type(None))
_LENGTH_MAX = 16
Expression = tuple[tuple[str, Any], ...]
"""Instructions in order: ``("name", x)``, ``("attribute", x)``, ``("constant", x)``, ``("item", None)``."""


def blocks_of(frame: FrameType) -> Iterator[Any]:
    """The known objects of the ``with`` blocks that a frame is in."""
    exits = exits_of(frame)
    yield from (one.__self__ for one in exits if one is not None)
    yield from named_blocks_of(frame, exits)


def exits_of(frame: FrameType) -> list[Any]:
    """The exit methods of the ``with`` blocks that a frame is in; None for each unknown one (rule 1)."""
    at = frame.f_lasti
    kept = [compat.stack_value_at(frame, at, one.depth) for one in blocks_at(frame.f_code, at)]
    return [_exit(one) for one in kept]


def objects_of_blocks(frame: FrameType) -> tuple[Any, ...]:
    """The objects with methods in Python whose ``with`` blocks a thread's frame is in. They need not have a name."""
    return tuple(one.__self__ for one in exits_of(frame) if type(one) is MethodType) if depth_of(frame) else ()


def _exit(kept: Any) -> Any:
    """``kept`` if it is an exit method, else None."""
    return kept if type(kept) in METHODS and kept.__name__ in EXITS else None


def named_blocks_of(frame: FrameType, exits: Sequence[Any]) -> Iterator[Any]:
    """The objects of the blocks with unknown exit methods, as far as the code shows them (rule 2)."""
    blocks = zip(blocks_at(frame.f_code, frame.f_lasti), exits, strict=False)
    within = [block.expression for block, left in blocks if left is None and block.expression]
    names = variables_of(frame) if within else {}
    values = (value_of(one, names, frame.f_globals) for one in within)
    yield from (one for one in values if one is not UNKNOWN)


def depth_of(frame: FrameType) -> int:
    """The number of ``with`` blocks that a frame is in, without those that it is entering or leaving."""
    return len(blocks_at(frame.f_code, frame.f_lasti))


def acquired_at(frame: FrameType) -> Any:
    """The object whose ``with`` block a frame is entering, or whose ``acquire()`` or ``__enter__()`` it calls; else None.

    A call with a timeout, or one that does not wait, does not count.
    """
    at = frame.f_lasti
    expression = _acquired_at(frame.f_code, at)
    value = value_of(expression, variables_of(frame), frame.f_globals) if expression else _acquired_with(frame)
    if value is not UNKNOWN:
        return value
    depth = _entered_by(frame.f_code, at)
    kept = None if depth is None else compat.stack_value_at(frame, at, depth)
    left = _exit(kept)
    return kept if left is None else left.__self__


def _acquired_with(frame: FrameType) -> Any:
    """The object whose ``acquire()`` a frame calls with arguments that tell it to wait; else unknown."""
    code, at = frame.f_code, frame.f_lasti
    if opname_at(code, at) not in _CALLED_AT or _ACQUIRING.isdisjoint(code.co_names):
        return UNKNOWN
    every = instructions_of(code)
    method = method_called_at(every, next(number for number, one in enumerate(every) if one.offset == at))
    if every[method].opname in ATTRIBUTES and every[method].argval in _ACQUIRING:
        names = variables_of(frame)
        lock = value_of(expression_before(every, method), names, frame.f_globals)
        if endless_call(every, method, names, lock) is not None:
            return lock
    lock = lock_waited_for(frame)
    return UNKNOWN if lock is None else lock


@cached_by_code
def instructions_of(code: CodeType) -> tuple[dis.Instruction, ...]:
    """The instructions of a code object."""
    return tuple(instructions(code))


@cached_by_code
def _entered_by(code: CodeType, at: int) -> int | None:
    """The stack index of the object that the ``with`` instruction at ``at`` enters; None for another instruction."""
    if opname_at(code, at) != "BEFORE_WITH":
        return None
    begins = next((one.offset for one in instructions_of(code) if one.offset > at), None)
    return next((one.depth - 1 for one in exception_entries_of(code) if one.start == begins), None)


@cached_by_code
def _acquired_at(code: CodeType, at: int) -> Expression:
    name = opname_at(code, at)
    if name not in _ACQUIRE or (name in _CALLED_AT and _ACQUIRING.isdisjoint(code.co_names) and sys.version_info < (3, 14)):
        return ()
    every = instructions_of(code)
    index = next(number for number, one in enumerate(every) if one.offset == at)
    one = every[index]
    if one.opname == "BEFORE_WITH":
        return expression_before(every, index)
    if one.opname not in _CALLED_AT:
        return ()
    if every[index - 1].opname == "LOAD_SPECIAL":
        return () if one.arg else expression_before(every, skip_back(every, index - 1) + 1)
    method = method_called_at(every, index)
    called = every[method]
    is_entered = called.opname in ATTRIBUTES and called.argval in _ACQUIRING and endless_call(every, method) is not None
    return expression_before(every, method) if is_entered else ()


def factories_at(frame: FrameType) -> tuple[Expression, ...]:
    """What a frame called to make the objects of those of its ``with`` blocks that are not understood.

    An expression is empty if the call is not understood either.
    """
    every = zip(_factories_at(frame.f_code, frame.f_lasti), exits_of(frame), strict=False)
    return tuple(made for made, left in every if made is not None and left is None)


def is_entering(frame: FrameType) -> bool:
    """Whether a frame is entering a ``with`` or ``async with`` block, so that it already keeps the exit method."""
    return _is_entering(frame.f_code, frame.f_lasti)


@cached_by_code
def _is_entering(code: CodeType, at: int) -> bool:
    before = [one for one in instructions_of(code) if one.offset <= at]
    while before and before[-1].opname in _ENTERING:
        before.pop()
    return bool(before) and before[-1].opname in _ENTERS


@cached_by_code
def entered_in(code: CodeType) -> frozenset[Expression]:
    """The expressions of a code object's ``with`` blocks, as far as they are understood."""
    every = instructions_of(code)
    found = (expression_before(every, index) for index, one in enumerate(every) if one.opname in _ENTERS)
    return frozenset(one for one in found if one)


@dataclass(frozen=True, slots=True)
class _Block:
    """A block that a frame is in: the instruction that enters it (0: one of several), and the expression of its object.

    ``expression`` is empty if it is not understood; ``depth``: the stack index of the exit method.
    """

    entered: int
    expression: Expression
    depth: int


@cached_by_code
def blocks_at(code: CodeType, at: int) -> tuple[_Block, ...]:
    """The blocks around an instruction, outermost first."""
    every = instructions_of(code)
    found = []
    for entered, inner, depth in _entered_at(code, at):
        expression = expression_before(every, entered) if entered else ()
        found.append(_Block(entered, () if is_changed(expression, inner) else expression, depth))
    return tuple(found)


@cached_by_code
def _factories_at(code: CodeType, at: int) -> tuple[Expression | None, ...]:
    """For each block, what is called to make its object; None if its expression is understood without that."""
    every = instructions_of(code)
    blocks = blocks_at(code, at)
    return tuple(None if one.expression else called_before(every, one.entered) if one.entered else () for one in blocks)


def _entered_at(code: CodeType, at: int) -> Iterator[tuple[int, list[dis.Instruction], int]]:
    """For each block, the instruction that enters it (0: one of several), those within, and its exit method's stack index."""
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


def called_before(every: Sequence[dis.Instruction], end: int) -> Expression:
    """What is called to make the value on top of the stack before instruction ``end``; empty if not understood."""
    last = skip_back(every, end - 1)
    if every[last].opname not in _MAKES:
        return ()
    height, calls, index = 1, 0, last
    while index >= 0:
        one = every[index]
        calls += one.opname in _MAKES
        if one.is_jump_target or calls > 1:
            return ()
        height -= stack_effect(one)
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
    """The handlers of an exception that is raised at an instruction, and of those that they raise, outermost first."""
    found: list[int] = []
    target: int | None = at
    while target is not None:
        target = next((entry.target for entry in entries if entry.start <= target < entry.end), None)
        if target is None or target in found:
            break
        found.append(target)
    return found[::-1]


def is_changed(expression: Expression, inner: Sequence[dis.Instruction]) -> bool:
    """Whether the code of a block sets a name or attribute of its object's expression."""
    names = {what for kind, what in expression if kind in ("name", "attribute")}
    return any(one.opname in _STORES and one.argval in names for one in inner)


def skip_back(every: Sequence[dis.Instruction], index: int) -> int:
    """The last instruction up to ``index`` that does more than move stack values."""
    while index > 0 and every[index].opname in SHUFFLES:
        index -= 1
    return index


def expression_before(every: Sequence[dis.Instruction], end: int) -> Expression:
    """The expression whose value is on top of the stack before instruction ``end``; empty if not understood."""
    found = operand_before(every, end)
    return () if found is None else found[0]


def operand_before(every: Sequence[dis.Instruction], end: int) -> tuple[Expression, int] | None:
    """As :func:`expression_before`, with the instruction at which the expression begins; None if not understood."""
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
    """The value of an expression, without running any code; :data:`UNKNOWN` if it has none."""
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
