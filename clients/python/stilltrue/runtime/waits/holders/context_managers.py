"""Finds the lock that a party holds inside the ``with`` block of an object of one of the application's classes.

Rules:

1. The class acquires the lock on entry: its ``__enter__`` (``__aenter__``) is straight-line code whose only call is
   ``acquire()`` or ``__enter__()``, without a timeout, on an object reached from one of its attributes, or a method that does
   so (:mod:`~stilltrue.runtime.waits.holders.delegates`); it awaits a coroutine. So a party inside holds the lock. Other calls
   may come before it, and after it those of libraries and of the class's own methods that call nothing else
   (:mod:`~stilltrue.runtime.waits.holders.calls_on_entry`). Or the class raises a gate
   (:mod:`~stilltrue.runtime.waits.holders.gates.gates`), which its ``__exit__`` lowers.
2. Its ``__exit__`` (``__aexit__``) mentions ``release`` or the like, or calls a method that releases the same lock.
3. Only ``__init__`` sets the attribute, so it still refers to the acquired lock.
4. No other method mentions the releasing functions, except a method of such a name, whose callers mention it too. So the lock
   is not released unnoticed while a party is in the block.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import CodeType, FunctionType
from typing import Any

from stilltrue.runtime.introspection.origins import is_application
from stilltrue.runtime.waits.holders.calls_on_entry import taken_among_others
from stilltrue.runtime.waits.holders.delegates import RELEASES, Effect, effect_of, method_of, only_call, variables_given
from stilltrue.runtime.waits.holders.gates.gates import Gate, raised_by
from stilltrue.runtime.waits.holders.with_blocks import instructions_of
from stilltrue.runtime.waits.orphaned_locks.census import codes_within

_WAYS = (("__enter__", "__exit__"), ("__aenter__", "__aexit__"))
_WRITES = frozenset({"STORE_ATTR", "DELETE_ATTR"})


def entered_lock(thing: Any) -> tuple[Any, frozenset[str]]:
    """The lock that a party holds in a block of ``thing`` (None: not understood), and the functions that release it."""
    kind = type(thing)
    for enters, leaves in _WAYS:
        enter = method_of(kind, enters)
        leave = None if enter is None or not is_application(enter.__code__) else method_of(kind, leaves)
        if enter is None or leave is None:
            continue
        for effect_on_entry in (_effect, taken_among_others) if _is_entered_alone(enter) else ():
            taken = effect_on_entry(enter, thing)
            givers = None if taken is None or not taken.takes else _givers_of(taken, leave, thing)
            if taken is not None and givers is not None and not _is_released_elsewhere(kind, taken.attributes, givers):
                return taken.lock, givers - RELEASES
    return None, frozenset()


def _is_entered_alone(enter: FunctionType) -> bool:
    """Whether a method needs no argument but its object, as in ``__enter__ = acquire``."""
    return enter.__code__.co_argcount - len(enter.__defaults__ or ()) == 1


def _givers_of(taken: Effect, leave: FunctionType, thing: Any) -> frozenset[str] | None:
    """The functions by which ``leave`` releases what was ``taken`` on entry (rule 2); None if it does not."""
    if type(taken.lock) is not Gate and not RELEASES.isdisjoint(leave.__code__.co_names):
        return RELEASES
    given = _effect(leave, thing)
    if given is None or given.takes or given.lock is not taken.lock:
        return None
    return RELEASES | given.functions


def _effect(method: FunctionType, thing: Any) -> Effect | None:
    """The effect of a method whose only call is on its own object, or its effect on a gate; else None."""
    call, first = only_call(method.__code__), method.__code__.co_varnames[0]
    if call is None and (raised := raised_by(method, [thing])) is not None:
        return Effect(*raised, frozenset({method.__name__}), frozenset(), 0)
    if call is None or not call.receiver or call.receiver[0] != ("name", first):
        return None
    return effect_of(call, variables_given(method, [thing]) or {first: thing}, method.__globals__, deep=1)


def _is_released_elsewhere(kind: type, attributes: frozenset[str], givers: frozenset[str]) -> bool:
    """Whether the class breaks rule 3 or 4."""
    for name, code in ((name, code) for base in kind.__mro__ for name, one in base.__dict__.items() for code in _codes_of(one)):
        if (name != "__init__" and _sets(code, attributes)) or (name not in givers and _names(code, givers)):
            return True
    return False


def _codes_of(member: Any) -> Iterator[CodeType]:
    """The code objects of a method, property, class or static method, and of the function that a decorator wraps."""
    inner = (getattr(member, name, None) for name in ("fget", "fset", "fdel", "__func__", "__wrapped__", "func"))
    for one in (member, *inner):
        if type(one) is FunctionType:
            yield from codes_within(one.__code__)


def _sets(code: CodeType, names: frozenset[str]) -> bool:
    return any(one.opname in _WRITES and one.argval in names for one in instructions_of(code))


def _names(code: CodeType, givers: frozenset[str]) -> bool:
    return not givers.isdisjoint((*code.co_names, *(one for one in code.co_consts if type(one) is str)))
