"""Which lock somebody has who stands in the ``with`` block of an object of a class of the application's own.

Rules:

1. The class takes the lock when the block is entered: its ``__enter__`` (``__aenter__``) is straight code that calls
   ``acquire()`` or ``__enter__()``, without arguments, on what one of its attributes leads to, awaits it if it is a coroutine,
   and calls nothing else. So whoever is inside has the lock.
2. Its ``__exit__`` (``__aexit__``) names ``release`` or the like: it is left by giving back.
3. No method but ``__init__`` sets the attribute: it still means the lock that was taken.
4. No other method names ``release`` or the like, but one of that name, whose callers name it too: nobody gives it back
   unnoticed while he is in the block.
"""

from __future__ import annotations

import dis
from collections.abc import Iterator
from types import CodeType, FunctionType
from typing import Any

from stilltrue.runtime.introspection.by_code import kept_by_code
from stilltrue.runtime.introspection.origins import is_application
from stilltrue.runtime.look.code.attributes import UNKNOWN
from stilltrue.runtime.look.code.names import ATTRIBUTES
from stilltrue.runtime.seen.blocks import SHUFFLES, Expression, expression_before, instructions_of, value_of
from stilltrue.runtime.seen.left.census import codes_within

_WAYS = (("__enter__", "__exit__"), ("__aenter__", "__aexit__"))
_TAKES = frozenset({"acquire", "__enter__", "__aenter__"})
_GIVES_BACK = frozenset({"release", "__exit__", "__aexit__"})
_CALLS = frozenset({"CALL", "CALL_KW", "CALL_FUNCTION_EX", "BEFORE_WITH", "BEFORE_ASYNC_WITH"})
_BACK_TO_WAIT = frozenset({"JUMP_BACKWARD_NO_INTERRUPT", "SEND"})
"""The loop of an ``await``."""
_WRITES = frozenset({"STORE_ATTR", "DELETE_ATTR"})


def entered_lock(thing: Any) -> tuple[Any, bool]:
    """What somebody has taken who stands in a block of ``thing``, and whether by ``await``; None if that is not understood."""
    kind = type(thing)
    for enters, leaves in _WAYS:
        enter, leave = (_method(kind, name) for name in (enters, leaves))
        if enter is None or leave is None or not is_application(enter.__code__):
            continue
        expression, awaited = _taken_in(enter.__code__)
        if expression and not _GIVES_BACK.isdisjoint(leave.__code__.co_names) and not _is_let_go_by_others(kind, expression):
            value = value_of(expression, {enter.__code__.co_varnames[0]: thing}, {})
            return (None, False) if value is UNKNOWN else (value, awaited)
    return None, False


def _method(kind: type, name: str) -> FunctionType | None:
    found = next((one.__dict__[name] for one in kind.__mro__ if name in one.__dict__), None)
    return found if type(found) is FunctionType else None


@kept_by_code
def _taken_in(code: CodeType) -> tuple[Expression, bool]:
    """Rule 1: the expression of what a code takes, and whether it awaits that; empty if it may do anything else."""
    nothing: tuple[Expression, bool] = ((), False)
    names = [name for name in code.co_names if name in _TAKES]
    if len(names) != 1 or not _GIVES_BACK.isdisjoint(code.co_names) or code.co_argcount != 1:
        return nothing
    every = instructions_of(code)
    awaited = any(one.opname == "GET_AWAITABLE" for one in every)
    if sum(one.opname in _CALLS for one in every) != 1 or any(map(_branches, every, (None, *every))):
        return nothing
    index = next((number for number, one in enumerate(every) if one.opname in ATTRIBUTES and one.argval in _TAKES), 0)
    call = index + 1
    while every[call].opname in SHUFFLES:
        call += 1
    expression = expression_before(every, index)
    of_self = len(expression) > 1 and expression[0] == ("name", code.co_varnames[0])
    called = every[call].opname == "CALL" and not every[call].arg
    changed = any(one.opname in _WRITES and ("attribute", one.argval) in expression for one in every)
    return (expression, awaited) if called and of_self and not changed else nothing


def _branches(one: dis.Instruction, before: dis.Instruction | None) -> bool:
    """Whether an instruction jumps elsewhere than within an ``await`` or its clean-up."""
    if one.opcode not in dis.hasjrel and one.opcode not in dis.hasjabs:
        return False
    return one.opname not in _BACK_TO_WAIT and (before is None or before.opname != "CLEANUP_THROW")


def _is_let_go_by_others(kind: type, expression: Expression) -> bool:
    """Rules 3 and 4, broken."""
    names = {what for how, what in expression if how == "attribute"}
    for name, code in ((name, code) for base in kind.__mro__ for name, one in base.__dict__.items() for code in _codes_of(one)):
        if (name != "__init__" and _sets(code, names)) or (name not in _GIVES_BACK and _names(code)):
            return True
    return False


def _codes_of(member: Any) -> Iterator[CodeType]:
    """The codes of a method, a property, a class or static method, and of what decorates one of these."""
    inner = (getattr(member, name, None) for name in ("fget", "fset", "fdel", "__func__", "__wrapped__", "func"))
    for one in (member, *inner):
        if type(one) is FunctionType:
            yield from codes_within(one.__code__)


def _sets(code: CodeType, names: set[Any]) -> bool:
    return any(one.opname in _WRITES and one.argval in names for one in instructions_of(code))


def _names(code: CodeType) -> bool:
    return not _GIVES_BACK.isdisjoint((*code.co_names, *(one for one in code.co_consts if type(one) is str)))
