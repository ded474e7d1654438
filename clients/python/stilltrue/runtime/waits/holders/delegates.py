"""Finds the lock that one of the application's functions acquires or releases for its caller, read from its bytecode.

Rules:

1. The function is straight-line code with one call: ``acquire()``, ``release()`` or the like, without a timeout, on an object
   reached from its parameters or globals; or of another such function, with understood arguments. It may pass its parameters
   on (``self._lock.acquire(blocking, timeout)``): then their values, or defaults, say whether it waits. If the inner
   function must be awaited, so must this one.
2. A caller that calls it as a separate statement holds the lock from there on, until it calls a function that releases it.
"""

from __future__ import annotations

import dis
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import CodeType, FunctionType, MethodType
from typing import Any

from stilltrue.runtime.bytecode.instructions import is_jump
from stilltrue.runtime.introspection.code_cache import cached_by_code
from stilltrue.runtime.introspection.origins import is_application
from stilltrue.runtime.look.code.attributes import UNKNOWN, attribute_of
from stilltrue.runtime.look.code.names import ATTRIBUTES, VARIABLES
from stilltrue.runtime.waits.holders.acquire_calls import is_endless, is_of_threading
from stilltrue.runtime.waits.holders.gates.gates import raised_by
from stilltrue.runtime.waits.holders.with_blocks import SHUFFLES, Expression, instructions_of, operand_before, value_of
from stilltrue.runtime.waits.resolvers.locks import is_awaited, lock_of

ACQUIRES = frozenset({"acquire", "__enter__", "__aenter__"})
RELEASES = frozenset({"release", "__exit__", "__aexit__"})
CALLS = frozenset({"CALL", "CALL_KW", "CALL_FUNCTION_EX", "BEFORE_WITH", "BEFORE_ASYNC_WITH"})
_BACK_TO_WAIT = frozenset({"JUMP_BACKWARD_NO_INTERRUPT", "SEND"})
"""The loop of an ``await``."""
_ODD = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS | inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR
_IDLE = frozenset({"CACHE", "NOP"})
_DEEP_MAX = 4


@dataclass(frozen=True, slots=True)
class Call:
    """A call of the function ``name``, or of the method ``name`` of ``receiver``.

    ``at``: the calling instruction; ``mention``: the one that loads the function. ``named``: the names of the last arguments.
    """

    receiver: Expression
    name: str
    arguments: tuple[Expression, ...]
    awaited: bool
    at: int
    mention: int
    named: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Effect:
    """The effect of a call: it acquires (``takes``) or releases a lock.

    ``functions`` and ``attributes``: the names through which it gets there; ``deep``: the number of functions in between;
    ``tries``: whether it has acquired the lock, its result says.
    """

    lock: Any
    takes: bool
    functions: frozenset[str]
    attributes: frozenset[str]
    deep: int
    tries: bool = False


def effect_of(
    call: Call, names: Mapping[str, Any], others: Mapping[str, Any], deep: int = 0, *, tries: bool = False
) -> Effect | None:
    """The effect of a call made with these variables and globals; None if it is not understood.

    ``tries``: one that does not wait for as long as it takes is understood, too.
    """
    receiver = value_of(call.receiver, names, others) if call.receiver else None
    if receiver is UNKNOWN or deep > _DEEP_MAX:
        return None
    lock = lock_of(receiver)
    named = frozenset({call.name})
    attributes = frozenset(what for how, what in call.receiver if how == "attribute")
    if lock is not None:
        takes = call.name in ACQUIRES
        waits = takes and _waits(call, lock, names if deep else {})
        known = (takes and (waits or tries) and call.awaited == is_awaited(lock)) or (
            call.name in RELEASES and not call.awaited
        )
        return Effect(lock, takes, named, attributes, deep, tries=takes and not waits) if known else None
    function, first = (None, ()) if call.named else called_by(call, receiver, names, others)
    if function is None or call.awaited != bool(function.__code__.co_flags & inspect.CO_COROUTINE):
        return None
    given = [*first, *(value_of(one, names, others) for one in call.arguments)]
    only = only_call(function.__code__)
    if only is None:
        raised = raised_by(function, given)
        return None if raised is None else Effect(*raised, named, attributes, deep + 1)
    own = variables_given(function, given)
    found = None if own is None else effect_of(only, own, function.__globals__, deep + 1, tries=tries)
    if found is None or (found.tries and not _returns_result(function.__code__, only.at)):
        return None
    return replace(found, functions=found.functions | named, attributes=found.attributes | attributes)


def _returns_result(code: CodeType, call: int) -> bool:
    """Whether a code object returns the result of the call at this instruction."""
    after = (one.opname for one in instructions_of(code)[call + 1 :] if one.opname not in _IDLE)
    return next(after, "") == "RETURN_VALUE"


def _waits(call: Call, lock: Any, names: Mapping[str, Any]) -> bool:
    """Whether the arguments of ``acquire()``, constants or these variables, let it wait for as long as it takes."""
    given = [value_of(one, names, {}) for one in call.arguments]
    return is_endless(given, call.named, waits_at_minus_one=is_of_threading(lock))


def called_by(
    call: Call, receiver: Any, names: Mapping[str, Any], others: Mapping[str, Any]
) -> tuple[FunctionType | None, tuple[Any, ...]]:
    """The application's own function that is called (else None), and the object whose method it is, if any."""
    found: Any = attribute_of(receiver, call.name) if call.receiver else names.get(call.name, others.get(call.name))
    first: tuple[Any, ...] = ()
    if type(found) is MethodType:
        found, first = found.__func__, (found.__self__,)
    elif found is UNKNOWN:
        found, first = method_of(type(receiver), call.name), (receiver,)
    return (found, first) if type(found) is FunctionType and is_application(found.__code__) else (None, ())


def method_of(kind: type, name: str) -> FunctionType | None:
    """The plain method of a class with this name, or None."""
    for one in kind.__mro__:  # a loop, since a look asks for thousands
        if name in one.__dict__:
            found = one.__dict__[name]
            return found if type(found) is FunctionType else None
    return None


def variables_given(function: FunctionType, given: Sequence[Any]) -> dict[str, Any] | None:
    """A function's initial variables; None if the arguments do not match its positional parameters."""
    code = function.__code__
    missing, defaults = code.co_argcount - len(given), function.__defaults__ or ()
    if code.co_flags & _ODD or code.co_kwonlyargcount or not 0 <= missing <= len(defaults):
        return None
    given = [*given, *defaults[len(defaults) - missing :]]
    own = {}
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=False):
        try:
            own[name] = cell.cell_contents
        except ValueError:  # an empty cell
            return None
    return own | dict(zip(code.co_varnames, given, strict=False))


@cached_by_code
def only_call(code: CodeType) -> Call | None:
    """Rule 1: the only call of a code object; None if it may do anything else."""
    every = instructions_of(code)
    if any(map(branches, every, (None, *every))):
        return None
    calls = [index for index, one in enumerate(every) if one.opname in CALLS]
    return _with_variables(every, calls[0]) if len(calls) == 1 else None


def _with_variables(every: Sequence[dis.Instruction], at: int) -> Call | None:
    """The call at an instruction of straight-line code, with variables that are set once replaced by their expressions."""
    call = call_at(every, at, named=True)
    if call is None:
        return None
    stores = [index for index, one in enumerate(every[:at]) if one.opname == "STORE_FAST"]
    set_to = {every[index].argval: operand_before(every, index) for index in stores}
    written = {one.argval for one in every if one.opname in ("STORE_ATTR", "DELETE_ATTR", "STORE_GLOBAL")}
    if len(set_to) != len(stores) or any(one is None for one in set_to.values()):
        return None
    values = {name: one[0] for name, one in set_to.items() if one is not None}
    receiver, *arguments = (_substituted(one, values) for one in (call.receiver, *call.arguments))
    if any(what in written for one in (receiver, *arguments) for _, what in one if type(what) is str):
        return None
    return replace(call, receiver=receiver, arguments=tuple(arguments))


def _substituted(expression: Expression, values: Mapping[str, Expression]) -> Expression:
    return tuple(
        part for how, what in expression for part in (values[what] if how == "name" and what in values else ((how, what),))
    )


def call_at(every: Sequence[dis.Instruction], at: int, *, named: bool = False) -> Call | None:
    """The call at an instruction, if it calls a name or a method with understood arguments, ``named`` ones too; else None."""
    one = every[at]
    names_at = _names_before(every, at) if named else None
    if one.opname != "CALL" and names_at is None:
        return None
    arguments: list[Expression] = []
    end = at if names_at is None else names_at
    names = () if names_at is None else tuple(every[names_at].argval)
    for _ in range(one.arg or 0):
        found = operand_before(every, end)
        if found is None:
            return None
        arguments.append(found[0])
        end = found[1]
    index = end - 1
    while index > 0 and every[index].opname in SHUFFLES:
        index -= 1
    called = every[index]
    awaited = any(later.opname == "GET_AWAITABLE" for later in every[at + 1 : at + 3])
    if called.opname in ATTRIBUTES:
        receiver = operand_before(every, index)
        if receiver is None:
            return None
        return Call(receiver[0], str(called.argval), tuple(reversed(arguments)), awaited, at, index, names)
    if called.opname in VARIABLES and type(called.argval) is str:
        return Call((), called.argval, tuple(reversed(arguments)), awaited, at, index, names)
    return None


def _names_before(every: Sequence[dis.Instruction], at: int) -> int | None:
    """The instruction that loads the names of a call's last arguments; None if it has none."""
    index = at - 1
    while index > 0 and every[index].opname in SHUFFLES:
        index -= 1
    return index if every[index].opname == "KW_NAMES" or every[at].opname == "CALL_KW" else None


def branches(one: dis.Instruction, before: dis.Instruction | None) -> bool:
    """Whether an instruction jumps, except within an ``await`` or its clean-up."""
    if not is_jump(one):
        return False
    return one.opname not in _BACK_TO_WAIT and (before is None or before.opname != "CLEANUP_THROW")
