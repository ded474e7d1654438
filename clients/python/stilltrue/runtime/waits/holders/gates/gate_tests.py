"""Decides from bytecode whether a test keeps every party waiting for as long as one attribute is positive.

Follows all paths through the test with that attribute positive and everything else unknown. On a path with an instruction that
does anything but load, compare and jump, the wait may end: that is doubt.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from types import CodeType
from typing import Any

from stilltrue.runtime.introspection.code_cache import cached_by_code
from stilltrue.runtime.look.code.names import ATTRIBUTES, VARIABLES
from stilltrue.runtime.waits.holders.try_finally import dropped_after
from stilltrue.runtime.waits.holders.with_blocks import instructions_of

_OWNER, _OTHER = object(), object()
_CONSTANTS = frozenset({"LOAD_CONST", "LOAD_SMALL_INT", "LOAD_CONST_IMMORTAL"})
_PASSED = frozenset({"RESUME", "NOP", "CACHE", "COPY_FREE_VARS", "MAKE_CELL", "NOT_TAKEN", "TO_BOOL"})
_JUMPS = frozenset({"JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT"})
_OF_ZERO = {">": True, ">=": True, "!=": True, "==": False, "<": False, "<=": False}
_OF_ONE = {">=": True, "<": False}
"""The results of comparing a number of at least one with 0 and with 1."""
_STEPS_MAX = 400
Stack = tuple[Any, ...]
Path = tuple[int, Stack]


class Positive(Enum):
    """The kinds of positive attributes: a count of at least one, ``True``, an owner (true in a test), or any owner.

    ``HAS_KEY``: a set that has the variables ``others`` among its items.
    """

    COUNT = "count"
    FLAG = "flag"
    OWNER = "owner"
    ANYBODY = "anybody"
    HAS_KEY = "has the key"


class _Unknown:
    """An unknown value. After a jump on it, its truth is known."""


@cached_by_code
def wait_before(code: CodeType, at: int) -> tuple[int, int] | None:
    """Where a frame inside ``condition.wait()`` continues, and where it loads ``wait``; None if not understood."""
    every = instructions_of(code)
    here = next((index for index in range(len(every) - 1, -1, -1) if every[index].offset <= at), 0)
    reads = next((index for index in range(here, -1, -1) if every[index].argval == "wait"), None)
    if reads is None or every[reads].opname not in ATTRIBUTES:
        return None
    call = next((index for index in range(reads, len(every)) if every[index].opname == "CALL"), len(every))
    dropped = dropped_after(every, call) if call <= here else None
    return None if dropped is None or dropped[0] <= here else (dropped[0] + 1, reads)


@cached_by_code
def keeps_waiting(
    code: CodeType, begins: int, ends: int | None, owner: str, attribute: str, positive: Positive, others: frozenset[str]
) -> bool:
    """Whether all paths from ``begins`` lead to ``ends``, or to a false result if ``ends`` is None.

    ``attribute`` of the variable ``owner`` is ``positive``, and neither equal nor identical to any of the variables ``others``.
    """
    return _Test(code, owner, attribute, positive, others).keeps_waiting(begins, ends)


class _Test:
    """A test of an attribute of a variable ``owner``."""

    def __init__(self, code: CodeType, owner: str, attribute: str, positive: Positive, others: frozenset[str]) -> None:
        self.owner, self.attribute, self.positive, self.others = owner, attribute, positive, others
        self._every = instructions_of(code)
        self._index_of = {one.offset: index for index, one in enumerate(self._every)}

    def keeps_waiting(self, begins: int, ends: int | None) -> bool:
        """As :func:`keeps_waiting`."""
        todo: list[Path] = [(begins, ())]
        seen: set[tuple[int, tuple[object, ...]]] = set()
        while todo:
            index, stack = todo.pop()
            key = (index, tuple(_key_of(one, stack) for one in stack))
            if index == ends or key in seen:
                continue
            seen.add(key)
            paths = self._paths(index, stack, ends) if len(seen) <= _STEPS_MAX and index < len(self._every) else None
            if paths is None:
                return False
            todo += paths
        return True

    def _paths(self, index: int, stack: Stack, ends: int | None) -> list[Path] | None:
        """The paths on from an instruction: none after a false result, None if the wait may end."""
        one = self._every[index]
        if one.opname.startswith("RETURN_"):
            value = one.argval if one.opname == "RETURN_CONST" else stack[-1] if stack else None
            return [] if ends is None and _truth(value) is False else None
        if one.opname in _JUMPS:
            return [(self._index_of[one.argval], stack)]
        if "JUMP" in one.opname and "_IF_" in one.opname:
            return self._jumped(one, index + 1, stack) if stack else None
        needs, after = _STRAIGHT.get(one.opname, (0, None))
        if after is None or len(stack) < needs or "NULL" in one.argrepr:
            return None
        return [(index + 1, after(self, one, stack))]

    def _jumped(self, one: Any, further: int, stack: Stack) -> list[Path]:
        """The paths on from a jump that depends on the top of the stack."""
        *below, top = stack
        if "NONE" in one.opname:
            wanted, found = "NOT_NONE" not in one.opname, None if type(top) is _Unknown else top is None
            when, otherwise = stack[:-1], stack[:-1]
        else:
            wanted, found = "TRUE" in one.opname, _truth(top)
            when = _known(stack if one.opname.endswith("_OR_POP") else tuple(below), top, wanted)
            otherwise = _known(tuple(below), top, not wanted)
        paths = [(self._index_of[one.argval], when)] if found is None or found == wanted else []
        return [*paths, (further, otherwise)] if found is None or found != wanted else paths


def _key_of(value: Any, stack: Stack) -> object:
    """A key by which states are compared; an unknown value's is its first index."""
    if type(value) is _Unknown:
        return next(at for at, one in enumerate(stack) if one is value)
    return type(value), id(value)


def _truth(value: Any) -> bool | None:
    if type(value) is _Unknown or value in (_OWNER, _OTHER, Positive.ANYBODY):
        return None
    return True if isinstance(value, Positive) else bool(value)


def _known(stack: Stack, value: Any, is_true: bool) -> Stack:
    """The stack after an unknown value has turned out to be true or false."""
    return tuple(is_true if one is value else one for one in stack) if type(value) is _Unknown else stack


# -- effects of instructions on the stack --------------------------------------------------------------------------------


def _load(test: _Test, one: Any, stack: Stack) -> Stack:
    names = one.argval if type(one.argval) is tuple else (one.argval,)
    return (*stack, *(_OWNER if name == test.owner else _OTHER if name in test.others else _Unknown() for name in names))


def _read(test: _Test, one: Any, stack: Stack) -> Stack:
    found = stack[-1] is _OWNER and one.argval == test.attribute
    return (*stack[:-1], test.positive if found else _Unknown())


def _negate(_: _Test, __: Any, stack: Stack) -> Stack:
    truth = _truth(stack[-1])
    return (*stack[:-1], _Unknown() if truth is None else not truth)


def _copy(_: _Test, one: Any, stack: Stack) -> Stack:
    return (*stack, stack[-one.arg] if one.arg <= len(stack) else _Unknown())


def _compare(_: _Test, one: Any, stack: Stack) -> Stack:
    *below, left, right = stack
    known = None
    if _is_owner_and_other(left, right):
        known = {"==": False, "!=": True}.get(one.argval)
    elif left is Positive.COUNT and type(right) in (int, bool):
        known = (_OF_ONE if right else _OF_ZERO).get(one.argval) if right in (0, 1) else None
    elif left is Positive.FLAG and type(right) in (int, bool):
        known = {"==": right == 1, "!=": right != 1}.get(one.argval)
    return (*below, _Unknown() if known is None else known)


def _is(_: _Test, one: Any, stack: Stack) -> Stack:
    *below, left, right = stack
    same = None
    if _is_owner_and_other(left, right):
        same = False
    elif left is Positive.OWNER or left is Positive.ANYBODY:
        same = False if right is None else None
    elif isinstance(left, Positive):
        same = False if right is None or right is False else left is Positive.FLAG if right is True else None
    return (*below, _Unknown() if same is None else same != bool(one.arg))


def _contains(_: _Test, one: Any, stack: Stack) -> Stack:
    *below, key, within = stack
    known = key is _OTHER and within is Positive.HAS_KEY
    return (*below, not one.arg if known else _Unknown())


def _is_owner_and_other(left: Any, right: Any) -> bool:
    return (isinstance(left, Positive) and right is _OTHER) or (left is _OTHER and isinstance(right, Positive))


_STRAIGHT: dict[str, tuple[int, Callable[[_Test, Any, Stack], Stack]]] = {
    **dict.fromkeys(_PASSED, (0, lambda _, __, stack: stack)),
    **dict.fromkeys(_CONSTANTS, (0, lambda _, one, stack: (*stack, one.argval))),
    **dict.fromkeys((*VARIABLES, "LOAD_FAST_LOAD_FAST", "LOAD_FAST_BORROW_LOAD_FAST_BORROW"), (0, _load)),
    "LOAD_ATTR": (1, _read),
    "UNARY_NOT": (1, _negate),
    "POP_TOP": (1, lambda _, __, stack: stack[:-1]),
    "COPY": (1, _copy),
    "COMPARE_OP": (2, _compare),
    "IS_OP": (2, _is),
    "CONTAINS_OP": (2, _contains),
}
"""Instructions without jumps: the number of stack values that each needs, and its effect."""
