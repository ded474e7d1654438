"""Whether code mentions ending things: its own, the code it calls by name, and what a callback or finalizer will end.

Rules:

1. Called code is found by its name (:mod:`~stilltrue.runtime.look.called_code.call_graph`). Deep in the call graph only
   cancelling counts: nearly everything closes something.
2. A callable that runs without being named (a handler in a registry, a ``with`` block's exit, a finalizer, a weak reference's
   callback) ends what it carries or will be given (:mod:`~stilltrue.runtime.look.called_code.jobs`) if its code mentions ending
   things. The globals it names do not count: nearly every program has a list of functions that outside requests may call.
3. Code called by name also ends the globals it names, but only if it or code it calls cancels or completes something (``def
   sweep(): for call in calls.values(): call.cancel()``): nearly every function closes something. The globals of anyio and of
   HTTP libraries do not count: anyio's lead to every task in a cancel scope, but it cancels through its own scopes alone; the
   classes of asgiref lead to everybody's items, but it cancels only its own.
4. Code that is called without being named (:mod:`~stilltrue.runtime.look.called_code.indirect_calls`) counts as deep in the
   call graph. A computed name counts if a text nearby may be the name of a method that cancels or completes something.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Iterable, Iterator
from types import CodeType, CoroutineType, FunctionType, MethodType, ModuleType
from typing import Any

from stilltrue.runtime import compat
from stilltrue.runtime.introspection.frames import frame_of
from stilltrue.runtime.introspection.origins import is_application, is_http_library, is_of_http_library, is_own_code
from stilltrue.runtime.look.called_code import call_graph, given_to_c
from stilltrue.runtime.look.called_code import reachable_names as reachable_code_names
from stilltrue.runtime.look.called_code.call_graph import (
    CODES_MAX,
    NAMED_DEPTH,
    Nearby,
    every_reachable_code,
    names_in,
    reachable_code,
    unnamed_on,
)
from stilltrue.runtime.look.called_code.indirect_calls import GENERATORS, functions_kept, used_by
from stilltrue.runtime.look.called_code.jobs import job_in
from stilltrue.runtime.look.called_code.methods import SETTERS, class_attributes, methods_of, partialmethod_arguments
from stilltrue.runtime.look.called_code.nearby import classes_named, classes_near
from stilltrue.runtime.look.called_code.reachable_names import ReachableNames, reachable_names
from stilltrue.runtime.look.code.attributes import inherited, named_values
from stilltrue.runtime.look.code.lookups import COMPUTED, COMPUTED_SET, name_called, texts_near
from stilltrue.runtime.look.code.names import names_of_own_timers, names_stored_in
from stilltrue.runtime.look.ways_out import reach
from stilltrue.runtime.look.ways_out.reach import Leads

_ENDS = re.compile(
    r"cancel(?!lederror)|abort|close|kill|(?<!wait_for_)terminat|shutdown|stop|throw|set_exception|expire|evict|reap|interrupt"
    r"|reschedule|^shift$|^set_result$"  # these give a timeout or scope an end
    r"|^a?closing$",  # of contextlib
    re.I,
)
_ENDS_FAR = re.compile(r"^(cancel|abort|throw|set_exception|cancel_all)$")
_CANCELS = re.compile(r"^(cancel|throw|set_exception|set_result)$")
_CALLED = (FunctionType, MethodType, functools.partial)
_Key = tuple[CodeType, type, frozenset[str] | None]
_NearKey = tuple[CodeType, frozenset[str] | None, Nearby]
_mentions_cache: dict[_Key, bool] = {}
_mentions_near: dict[_NearKey, tuple[bool, bool]] = {}
"""Cache of this look: whether the code that a code reaches with what is nearby mentions ending things, or computes names."""
_globals_by_near: dict[_NearKey, tuple[Any, ...]] = {}
"""Cache of this look: the globals that the code which a code calls with what is nearby may end."""
_called_cache: dict[int, tuple[Any, ReachableNames]] = {}
"""Cache of this look, by callable identity: its reachable names."""


def clear_caches() -> None:
    """Clear the caches after a look."""
    _mentions_near.clear()
    _globals_by_near.clear()
    _called_cache.clear()
    reachable_code_names.clear_caches()
    reach.clear_caches()
    call_graph.clear_caches()
    given_to_c.clear_caches()


def is_ending(name: str) -> bool:
    """Whether a name suggests ending something."""
    return _ENDS.search(name) is not None


def cancels(name: str) -> bool:
    """Whether a name is that of an operation that cancels or completes something."""
    return _CANCELS.match(name) is not None


def ends_far(name: str) -> bool:
    """Whether a name is that of an operation that cancels, aborts or completes something."""
    return cancels(name) or _ENDS_FAR.match(name) is not None


def mentions_ending(
    code: CodeType,
    names: dict[str, Any],
    owner: Any = None,
    held: Iterable[Any] = (),
    ahead: frozenset[str] | None = None,
    used: frozenset[str] | None = None,
) -> bool:
    """Whether ``code``, or code it calls, ends things.

    ``names``: its globals; ``owner``: its instance; ``held``: its other objects; ``ahead``: the names still ahead of it, None
    for all; ``used``: the names that it may still read or set, None for the same.
    """
    key = (code, type(owner), ahead)
    known = _mentions_cache.get(key)
    if known is None:
        if len(_mentions_cache) >= CODES_MAX:
            _mentions_cache.clear()
        _mentions_cache[key] = known = _any_mentions_ending(code, names, (type(owner),), ahead)
    if known or not (code.co_names or code.co_freevars or code.co_varnames):
        return known
    near = (owner, *held, *named_values(code.co_names, names))
    if any(is_ending(name) for thing in near for name in name_called(thing)):
        return True
    nearby = _nearby(code, names, near, ahead, used)
    found = _mentions_near.get(near_key := (code, ahead, nearby))
    if found is None:
        every = every_reachable_code(code, names, nearby, ahead)
        called = [one for one, _, depth in every if depth or ahead is None]
        ends = _any_mentions_ending(code, names, nearby.kinds, ahead) or any(map(_cancels, called))
        found = _mentions_near[near_key] = ends, any(map(_computes_names, called))
    ends, computes = found
    return ends or (computes and any(map(cancels, texts_near(code, (*near, *partialmethod_arguments(nearby.kinds))))))


def _nearby(
    code: CodeType, names: dict[str, Any], near: tuple[Any, ...], ahead: frozenset[str] | None, used: frozenset[str] | None
) -> Nearby:
    words = next((one for one in (used, ahead) if one is not None), names_in(code))
    return Nearby(
        classes_near(near), classes_named(near, words), functions_kept(code, used_by(code, names, near, words), words)
    )


def _computes_names(code: CodeType) -> bool:
    return is_own_code(code) and COMPUTED in names_in(code)


def globals_ended(
    code: CodeType,
    names: dict[str, Any],
    owner: Any = None,
    held: Iterable[Any] = (),
    ahead: frozenset[str] | None = None,
    used: frozenset[str] | None = None,
) -> tuple[Any, ...]:
    """The globals that ``code``, or code it calls, may end (rule 3); arguments as for :func:`mentions_ending`."""
    if ahead is not None and not ahead:
        return ()
    nearby = _nearby(code, names, (owner, *held, *named_values(code.co_names, names)), ahead, used)
    known = _globals_by_near.get(key := (code, ahead, nearby))
    if known is None:
        every = every_reachable_code(code, names, nearby, ahead)
        known = _globals_by_near[key] = tuple({id(one): one for one in _globals_of_cancelling(every)}.values())
    return known


def _globals_of_cancelling(every: Iterable[tuple[CodeType, dict[str, Any], int]]) -> list[Any]:
    """The globals named by functions that cancel, and by functions that name one of those, transitively."""
    todo = {code: names for code, names, _ in every if is_application(code) and not is_http_library(code)}
    found: list[Any] = []
    words: set[str] = set()
    cancelling = [code for code in todo if any(map(_CANCELS.match, names_in(code)))]
    while cancelling:
        words.update(code.co_name for code in cancelling)
        for code in cancelling:
            names = todo.pop(code)
            found += named_values(code.co_names, names)
        cancelling = [code for code in todo if not words.isdisjoint(names_in(code)) or _calls_unnamed(code, todo[code], words)]
    return [*found, *class_attributes(found)]


def _calls_unnamed(code: CodeType, names: dict[str, Any], words: set[str]) -> bool:
    """Whether code may call a function of one of these names on the globals it names, without naming it."""
    every = names_in(code)
    objects = named_values(every, names)
    if COMPUTED in every and not words.isdisjoint(methods_of(classes_named(objects, every))):
        return True
    set_by_text = methods_of(classes_named(objects, every)).get(SETTERS, ()) if COMPUTED_SET in every else ()
    return any(one.__code__.co_name in words for one in (*set_by_text, *unnamed_on(code, objects, every)))


def ended_by(
    thing: Any, leads: Leads, by: frozenset[str] = frozenset(), named: Callable[[CodeType], bool] = lambda _: False
) -> tuple[Any, ...]:
    """The objects that ``thing`` ends when it is called or dropped (rule 2).

    ``by``: it must name one of these; by default, mention ending things. ``named``: whether the globals that some code names
    are included. Objects that do not lead to a target are left out if that saves reading code.
    """
    kind = type(thing)
    if kind in _CALLED or (kind in compat.COMPILED_FUNCTIONS and type(thing.__self__) is not ModuleType):
        return _ended_by_call(thing, leads, by, named)
    if (kind in GENERATORS or _is_to_begin(thing)) and (frame := frame_of(thing)) is not None and is_application(frame.f_code):
        held = compat.held_by_coroutine(thing)
        if not by:  # whoever asks for its next item, closes or drops it runs it
            ends = any(map(cancels, names_in(frame.f_code)))
            return (*held, *named_values(frame.f_code.co_names, frame.f_globals)) if ends else ()
        reachable = reachable_names(frame.f_code, frame.f_globals, held)
        return () if by.isdisjoint(reachable.names) else (*held, *reachable.global_values)
    finalizer = _finalizer_of(kind)
    if finalizer is not None and leads((thing,)) and _mentions(finalizer.__code__, finalizer.__globals__, thing, (), by):
        return (thing,)
    callbacks = compat.weakref_callbacks(thing)
    ended = tuple(one for callback in callbacks for one in _ended_by_call(callback, leads, by, named))
    functions, given = job_in(thing)
    if not by and not issubclass(kind, tuple | list | dict):  # a table of routes is one of requests to come
        ended += tuple(held for one in functions for held in _globals_ended_by_job(one, given, leads))
    return (*ended, *given) if functions and leads(given) and any(_ends_given(one, given, by) for one in functions) else ended


def _is_to_begin(thing: Any) -> bool:
    """Whether it is a coroutine that has not begun: who awaits it runs it."""
    return type(thing) is CoroutineType and inspect.getcoroutinestate(thing) == inspect.CORO_CREATED


def _globals_ended_by_job(function: Any, given: Iterable[Any], leads: Leads) -> Iterator[Any]:
    """The globals that the function of a job may end."""
    code, names, owner = compat.code_behind(function)
    if code is not None and is_application(code):
        near = (*_carried_by_callable(function), *given)
        yield from (one for one in globals_ended(code, names, owner, near) if leads((one,)))


def _ends_given(function: Any, given: tuple[Any, ...], by: frozenset[str]) -> bool:
    """Whether a function mentions ending its future arguments."""
    code, names, owner = compat.code_behind(function)
    return code is not None and is_application(code) and _mentions(code, names, owner, given, by)


def _ended_by_call(called: Any, leads: Leads, by: frozenset[str], named: Callable[[CodeType], bool]) -> tuple[Any, ...]:
    carried = _carried_by_callable(called)
    code, names, owner = compat.code_behind(called)
    if code is None or not is_application(code):
        name = compat.name_of(called).rsplit(".", 1)[-1]
        return carried if (name in by or (not by and is_ending(name))) and leads(carried) else ()
    job = tuple(_globals_ended_by_job(called, (), leads)) if type(called) is functools.partial and not by else ()
    with_globals = named(code)
    if not with_globals and not leads(carried):
        return job
    if not by:
        return (*job, *carried) if mentions_ending(code, names, owner, carried) else job
    reachable = _names_of_called(called, code, names, (owner, *carried))
    if by.isdisjoint(reachable.names):
        return ()
    return (*carried, *(one for one in reachable.global_values if with_globals and not _is_class_of_http_library(one)))


def _is_class_of_http_library(thing: Any) -> bool:
    """Rule 3."""
    return issubclass(type(thing), type) and is_of_http_library(thing)


def _names_of_called(called: Any, code: CodeType, names: dict[str, Any], near: Iterable[Any]) -> ReachableNames:
    known = _called_cache.get(id(called))
    if known is None:
        known = _called_cache[id(called)] = called, reachable_names(code, names, near)
    return known[1]


def _mentions(code: CodeType, names: dict[str, Any], owner: Any, held: Iterable[Any], by: frozenset[str]) -> bool:
    if not by:
        return mentions_ending(code, names, owner, held)
    return not by.isdisjoint(reachable_names(code, names, (owner, *held)).names)


def _carried_by_callable(called: Any) -> tuple[Any, ...]:
    if type(called) is functools.partial:
        return (*_carried_by_callable(called.func), *called.args, *called.keywords.values())
    return compat.bound_to(called)


def _finalizer_of(kind: type) -> FunctionType | None:
    found = inherited(kind, "__del__")
    return found if type(found) is FunctionType and is_application(found.__code__) else None


def _any_mentions_ending(code: CodeType, names: dict[str, Any], kinds: Iterable[type], ahead: frozenset[str] | None) -> bool:
    every = reachable_code(code, names, kinds, ahead)
    if ahead is not None:
        next(every)  # the code itself
        if any(map(_ENDS.search, ahead)):
            return True
    return any(_mentions_ending_itself(one) if depth <= NAMED_DEPTH else _cancels(one) for one, _, depth in every)


def _cancels(code: CodeType) -> bool:
    """Rule 1."""
    return any(map(_ENDS_FAR.match, names_in(code)))


def _mentions_ending_itself(code: CodeType) -> bool:
    sets_deadline = "deadline" in code.co_names and "deadline" in names_stored_in(code)
    named = frozenset(code.co_names) - names_of_own_timers(code)
    return sets_deadline or any(map(_ENDS.search, named)) or any(map(_constant_mentions_ending, code.co_consts))


def _constant_mentions_ending(const: object) -> bool:
    """Whether it is code that mentions ending things, or a name to look up, as by ``methodcaller``."""
    if isinstance(const, CodeType):
        return _mentions_ending_itself(const)
    return isinstance(const, str) and const.isidentifier() and is_ending(const)
