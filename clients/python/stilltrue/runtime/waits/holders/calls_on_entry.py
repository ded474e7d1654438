"""Finds the lock that a class acquires on entry among other calls: it logs, counts, takes the time, begins its work.

Rules:

1. The code is straight-line, so that it acquires the lock in any case. What it calls before that cannot release the lock.
2. After that it calls only what surely does not release it: functions of libraries, by an understood name, and methods of its
   own object that call nothing else. None of the releasing functions is among them.
"""

from __future__ import annotations

import dis
from collections.abc import Mapping, Sequence
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

from stilltrue.runtime.introspection.origins import is_application
from stilltrue.runtime.look.code.attributes import UNKNOWN, attribute_of
from stilltrue.runtime.waits.holders.delegates import CALLS, RELEASES, Call, Effect, branches, call_at, effect_of, method_of
from stilltrue.runtime.waits.holders.gates.gates import Gate
from stilltrue.runtime.waits.holders.with_blocks import called_before, instructions_of, value_of

_DEEP_MAX = 3


def taken_among_others(enter: FunctionType, thing: Any) -> Effect | None:
    """The effect of the call by which ``enter`` acquires a lock of its object ``thing``; None if that is not understood."""
    code, first = enter.__code__, enter.__code__.co_varnames[0]
    every = instructions_of(code)
    if any(map(branches, every, (None, *every))) or any(one.opname == "STORE_FAST" and one.argval == first for one in every):
        return None
    names, calls = {first: thing}, [index for index, one in enumerate(every) if one.opname in CALLS]
    for number, index in enumerate(calls):
        call = call_at(every, index)
        on_itself = call is not None and bool(call.receiver) and call.receiver[0] == ("name", first)
        effect = effect_of(call, names, enter.__globals__) if call is not None and on_itself else None
        if effect is None:
            continue
        if not effect.takes or type(effect.lock) is Gate:
            return None
        after = (_call_at(every, later) for later in calls[number + 1 :])
        return effect if all(_is_harmless(one, thing, names, enter.__globals__) for one in after) else None
    return None


def _call_at(every: Sequence[dis.Instruction], at: int) -> Call | None:
    """The call at an instruction, without its arguments if these are not understood; None if the function is not either."""
    call = call_at(every, at)
    called = called_before(every, at + 1) if call is None else ()
    if not called or any(how not in ("name", "attribute") for how, _ in called):
        return call
    return Call(called[:-1], str(called[-1][1]), (), awaited=False, at=at, mention=at)


def _is_harmless(call: Call | None, thing: Any, names: Mapping[str, Any], others: Mapping[str, Any], deep: int = 0) -> bool:
    """Rule 2, for a call made with these variables and globals by a method of ``thing``."""
    if call is None or call.name in RELEASES or deep > _DEEP_MAX:
        return False
    receiver = value_of(call.receiver, names, others) if call.receiver else None
    if not call.receiver or type(receiver) is ModuleType:
        known = names.get(call.name, others.get(call.name)) if receiver is None else receiver.__dict__.get(call.name)
        return _is_of_library(known)
    method = None if receiver is UNKNOWN else method_of(type(receiver), call.name)
    if method is None or attribute_of(receiver, call.name) is not UNKNOWN:
        return False
    return not is_application(method.__code__) or (receiver is thing and _calls_only_harmless(method, thing, deep + 1))


def _calls_only_harmless(method: FunctionType, thing: Any, deep: int) -> bool:
    code = method.__code__
    every, own = instructions_of(code), dict.fromkeys(code.co_varnames[: min(1, code.co_argcount)], thing)
    inner = (_call_at(every, index) for index, one in enumerate(every) if one.opname in CALLS)
    return all(_is_harmless(one, thing, own, method.__globals__, deep) for one in inner)


def _is_of_library(function: Any) -> bool:
    """Whether it is a plain function that is not the application's, in C or in Python."""
    function = function.__func__ if type(function) is MethodType else function
    return type(function) is BuiltinFunctionType or (type(function) is FunctionType and not is_application(function.__code__))
