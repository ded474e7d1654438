"""The names that code may use, and the globals they refer to, in the code itself and in all code it calls.

Rules:

1. Called code is found by its name (:mod:`~stilltrue.runtime.look.called_code.call_graph`). Methods that run without being
   named (the exit of a ``with`` block, a finalizer) count as well.
2. Code that calls ``release()`` only on what the same function acquired does not release what others hold, unless it may be
   suspended in between (the generator of a context manager).
3. Code that completes and cancels only futures that it has made itself does not end what others wait for
   (:mod:`~stilltrue.runtime.waits.futures.own_futures`).
4. redis-py sends every command by ``execute_command``, and its locks release by a script that compares tokens. So its own code
   does not delete or expire keys that others hold; application code that does names the command. Likewise, anyio's own code
   releases a limiter's token on behalf of the current task only.
5. Code that has a pipe or queue of multiprocessing and calls values may run any code: functions come through a pipe by name.
6. Code that deletes files or sends signals has a further name (:mod:`~stilltrue.runtime.look.code.system_operations`). So does
   code that may take items out of queues (:mod:`~stilltrue.runtime.waits.holders.queues.queue_operations`), or put into one
   what it has not taken out of it (:mod:`~stilltrue.runtime.waits.holders.queues.queue_pools`), and code that may cancel the
   items of an executor (:mod:`~stilltrue.runtime.look.code.executor_operations`).
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from types import CodeType, FunctionType, ModuleType
from typing import Any

from stilltrue.runtime import compat, own_packages
from stilltrue.runtime.bytecode.instructions import IS_TRANSLATED, instructions
from stilltrue.runtime.introspection.code_cache import cached_by_code
from stilltrue.runtime.introspection.origins import is_application, is_library, is_own_code
from stilltrue.runtime.look.called_code.call_graph import (
    Nearby,
    every_reachable_code,
    names_in,
    reachable_code,
)
from stilltrue.runtime.look.called_code.indirect_calls import attributes_named, functions_kept, used_by
from stilltrue.runtime.look.called_code.methods import imported, partialmethod_arguments
from stilltrue.runtime.look.called_code.nearby import classes_named, classes_near, is_own_class
from stilltrue.runtime.look.code.attributes import named_values
from stilltrue.runtime.look.code.executor_operations import CANCELS_ITEMS, cancels_items
from stilltrue.runtime.look.code.lookups import (
    COMPUTED,
    LOOKUPS,
    calls_values,
    looked_up,
    may_run_any_code,
    may_see_any_object,
    name_called,
    texts_near,
)
from stilltrue.runtime.look.code.system_operations import system_operations
from stilltrue.runtime.waits.databases.redis_names import DELETING
from stilltrue.runtime.waits.ending_operations import RELEASE
from stilltrue.runtime.waits.futures.own_futures import ENDING, ends_only_own
from stilltrue.runtime.waits.holders.queues.queue_operations import depended_on, queue_operations
from stilltrue.runtime.waits.holders.queues.queue_pools import GIVES_ITEMS, gives_items
from stilltrue.runtime.waits.holders.try_finally import releases_only_in_finally
from stilltrue.runtime.waits.orphaned_locks.balance import releases_only_own
from stilltrue.runtime.waits.resolvers.event_loops.anyio_waits import ON_BEHALF

_OF_EXECUTORS = frozenset({"_max_workers", "_adjust_thread_count", "_work_queue"})
_LIBRARY_NAMES = RELEASE | {"cancel", "set_result", "set_exception", "__exit__", "__aexit__"} | _OF_EXECUTORS
_ANYIO, _REDIS = "anyio", "redis"
_MULTIPROCESSING = "multiprocessing"
_RECEIVING = frozenset({"recv", "get", "get_nowait"})
_OF_PIPES = ("multiprocessing.connection", "multiprocessing.queues")
_YIELDS = inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR
_HANDING_ON = frozenset({"PUSH_NULL", "STORE_ATTR", "STORE_SUBSCR", "STORE_GLOBAL"})
_SUSPENDS = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_reached: dict[tuple[Any, ...], _Reached] = {}
"""Cache of this look, by all that it depends on: the names that a code reaches."""
_reached_by_own: dict[tuple[Any, ...], _Reached] = {}
"""The same for the program's own code alone."""
_code_names_cache: dict[tuple[int, int], tuple[CodeType, dict[str, Any], _CodeNames]] = {}
"""Cache of this look, by the identities of a code and its globals: its own names."""


def clear_caches() -> None:
    """Clear the caches after a look."""
    _reached.clear()
    _reached_by_own.clear()
    _code_names_cache.clear()


_Reached = tuple[dict[str, Any], "ReachableNames", list[CodeType]]
"""The globals of a code, so that they live as long; the names that it reaches; the codes among these that compute names."""


@dataclass(frozen=True, slots=True)
class ReachableNames:
    """All names that code may use and the globals they refer to; ``any_code``: it may run any code.

    ``any_object``: it may get any object. ``any_name``: it imports a module that is not loaded yet, so any name counts.
    ``handed_on``: globals that called code returns or passes on, if that was looked for.
    """

    names: frozenset[str] = frozenset()
    global_values: tuple[Any, ...] = ()
    any_code: bool = False
    any_object: bool = False
    any_name: bool = False
    handed_on: tuple[Any, ...] = ()


def reachable_names(
    code: CodeType, names: dict[str, Any], near: Iterable[Any], ahead: frozenset[str] | None = None, *, far: bool = True
) -> ReachableNames:
    """The names that ``code`` with the globals ``names`` reaches; ``ahead``: the names still ahead of it.

    ``far``: include methods of objects found inside those it names.
    """
    near = tuple(near)
    every = names_in(code) if ahead is None else ahead | (frozenset() if LOOKUPS.isdisjoint(ahead) else looked_up(code))
    objects = (*near, *named_values(every, names))
    kinds = classes_near(objects) if far else tuple(kind for kind in dict.fromkeys(map(type, objects)) if is_own_class(kind))
    nearby = Nearby(kinds, classes_named(objects, every), functions_kept(code, used_by(code, names, objects, every), every))
    has_pipe = _has_pipe((*objects, *(each for thing in objects for each in attributes_named(thing, every))))
    known = _reached.get(key := (code, id(names), nearby, ahead, has_pipe))
    if known is None:
        known = _reached[key] = _names_reached(code, names, nearby, ahead, every, has_pipe=has_pipe)
    _, found, computing = known
    further = {name for thing in near for name in name_called(thing)}
    for one in computing:
        further.update(texts_near(one, (*objects, *partialmethod_arguments(kinds))))
    return found if further <= found.names else replace(found, names=found.names | further)


def _names_reached(
    code: CodeType,
    names: dict[str, Any],
    nearby: Nearby,
    ahead: frozenset[str] | None,
    every: frozenset[str],
    *,
    has_pipe: bool,
) -> _Reached:
    """The names that ``code`` with the words ``every`` reaches."""
    any_code = any_object = any_name = False
    words, named, computing = set[str](), dict[int, Any](), list[CodeType]()
    for one, others, depth in every_reachable_code(code, names, nearby, ahead):
        own = _cached_code_names(one, others) if depth else _code_names(every, one, others)
        any_code = any_code or (has_pipe and _may_call_what_comes(one, own.names))
        any_code, any_object, any_name = (any_code or own.any_code, any_object or own.any_object, any_name or own.any_name)
        computing += [one] if own.computed else []
        words |= own.names
        named.update(own.named)
    return names, ReachableNames(frozenset(words), tuple(named.values()), any_code, any_object, any_name), computing


def _has_pipe(things: Iterable[Any]) -> bool:
    """Whether there is a pipe or queue of multiprocessing among some objects (rule 5)."""
    return _MULTIPROCESSING in sys.modules and any(compat.module_of(type(one)).startswith(_OF_PIPES) for one in things)


def _may_call_what_comes(code: CodeType, names: frozenset[str]) -> bool:
    """Whether code with these names ahead, which has a pipe, may call what comes through it; a module only by receiving it."""
    receives = code.co_name != "<module>" or not _RECEIVING.isdisjoint(names)
    return receives and is_own_code(code) and calls_values(code)


def codes_reached(
    code: CodeType, names: dict[str, Any], near: Iterable[Any], ahead: frozenset[str] | None = None
) -> list[CodeType]:
    """``code`` with the globals ``names``, and all code that it reaches; ``ahead``: the names still ahead of it."""
    words = names_in(code) if ahead is None else ahead
    objects = (*near, *named_values(words, names))
    kept = functions_kept(code, used_by(code, names, objects, words), words)
    nearby = Nearby(classes_near(objects), classes_named(objects, words), kept)
    return [one for one, _, _ in every_reachable_code(code, names, nearby, ahead)]


@dataclass(frozen=True, slots=True)
class _CodeNames:
    """One code's own names, like :class:`ReachableNames` with globals by identity; ``computed``: it computes names."""

    names: frozenset[str]
    named: dict[int, Any]
    any_code: bool
    any_object: bool
    any_name: bool
    computed: bool


def _done_to_queues(code: CodeType, words: frozenset[str]) -> frozenset[str]:
    return queue_operations(code, words).union((GIVES_ITEMS,) if gives_items(code, words) else ())


def _cached_code_names(code: CodeType, names: dict[str, Any]) -> _CodeNames:
    """The own names of called code, cached per look."""
    known = _code_names_cache.get((id(code), id(names)))
    if known is None:
        texts = (const for const in code.co_consts if isinstance(const, str) and const.isidentifier())
        words = names_in(code)
        own = replace(own := _code_names(words, code, names), names=(own.names - _ignored_names(code)).union(texts))
        known = _code_names_cache[id(code), id(names)] = code, names, own
    return known[2]


def _code_names(words: frozenset[str], code: CodeType, names: dict[str, Any]) -> _CodeNames:
    """The own names of code with these ``words``."""
    named = {id(thing): thing for thing in _globals_named(words, names)}
    return _CodeNames(
        names=words.union(
            (name for thing in named.values() for name in name_called(thing)),
            system_operations(code, words, names),
            _done_to_queues(code, words) if depended_on.is_set() else (),
            (CANCELS_ITEMS,) if is_application(code) and cancels_items(code, words) else (),
        ),
        named=named,
        any_code=may_run_any_code(code, words),
        any_object=may_see_any_object(code, words),
        any_name=is_own_code(code) and None in imported(words, names),
        computed=COMPUTED in words,
    )


def own_reachable_names(
    code: CodeType, names: dict[str, Any], near: Iterable[Any], ahead: frozenset[str] | None = None
) -> ReachableNames:
    """The same for the program's own code that ``code`` reaches, installed packages left out, and what it hands on."""
    every = names_in(code) if ahead is None else ahead | (frozenset() if LOOKUPS.isdisjoint(ahead) else looked_up(code))
    objects = (*near, *named_values(every, names))
    kept = functions_kept(code, used_by(code, names, objects, every), every)
    nearby = Nearby(classes_near(objects), classes_named(objects, every), kept)
    known = _reached_by_own.get(key := (code, id(names), nearby, ahead))
    if known is None:
        known = _reached_by_own[key] = _own_names_reached(code, names, nearby, ahead, every)
    _, found, computing = known
    texts = {text for one in computing for text in texts_near(one, objects)}
    return found if texts <= found.names else replace(found, names=found.names | texts)


def _own_names_reached(
    code: CodeType, names: dict[str, Any], nearby: Nearby, ahead: frozenset[str] | None, every: frozenset[str]
) -> _Reached:
    """The same for the program's own code alone."""
    words, named, handed_on, computing = set[str](), dict[int, Any](), dict[int, Any](), list[CodeType]()
    for one, others, depth in every_reachable_code(code, names, nearby, ahead):
        if is_own_code(one):
            own = names_in(one) if depth else every
            by_text = "globals" in own
            own = own.union(others if by_text else ())
            words |= own
            computing += [one] if COMPUTED in own else []
            found = {id(thing): thing for thing in _globals_named(own, others)}
            named.update(found)
            handed_on.update(found if by_text or (depth and hands_on(one)) else {})
    return names, ReachableNames(frozenset(words), tuple(named.values()), handed_on=tuple(handed_on.values())), computing


@cached_by_code
def hands_on(code: CodeType) -> bool:
    """Whether a function may return, yield or store an object, or pass one to a function that it does not call by a name.

    A function that does none of these can only pass on what it has to functions that are found by their names.
    """
    if code.co_flags & _YIELDS or IS_TRANSLATED:
        return True
    every = [one for one in instructions(code) if one.opname not in ("CACHE", "NOP")]
    returned = (before for before, one in pairwise(every) if one.opname == "RETURN_VALUE")
    if any(one.opname in _HANDING_ON for one in every) or any(one.opname != "LOAD_CONST" for one in returned):
        return True
    return any(hands_on(one) for one in code.co_consts if isinstance(one, CodeType))


def names_of_application(code: CodeType, names: dict[str, Any], owner: Any) -> frozenset[str]:
    """The names used by a method of ``owner`` and the application code it calls."""
    every = reachable_code(code, names, classes_near((owner,)))
    return frozenset().union(*(names_in(one) for one, _, _ in every if is_application(one)))


def _ignored_names(code: CodeType) -> frozenset[str]:
    """Names that cannot affect others: a release of its own (rules 2 and 3), and what libraries do for themselves (rule 4)."""
    if is_library(code):
        return _LIBRARY_NAMES
    own = RELEASE if not code.co_flags & _SUSPENDS and _releases_only_own(code) else frozenset()
    if not code.co_flags & _YIELDS and not ENDING.isdisjoint(code.co_names) and ends_only_own(code):
        own |= ENDING
    package = own_packages.name_of(code.co_filename)
    own |= ON_BEHALF if package == _ANYIO else frozenset()
    return own | DELETING if package == _REDIS else own


@cached_by_code
def _releases_only_own(code: CodeType) -> bool:
    return releases_only_in_finally(code) or ("acquire" in code.co_names and releases_only_own(code))


def _globals_named(words: frozenset[str], names: dict[str, Any]) -> Iterator[Any]:
    """The globals that some words name, also in modules; functions only if they have attributes."""
    todo = [*named_values(words, names)]
    todo += [module for module in imported(words, names) if module is not None]
    modules: dict[int, ModuleType] = {}
    while todo:
        thing = todo.pop()
        if type(thing) is not ModuleType:
            if type(thing) is not FunctionType or thing.__dict__:
                yield thing
        elif id(thing) not in modules:
            modules[id(thing)] = thing
            within = ModuleType.__getattribute__(thing, "__dict__")
            todo += named_values(words, within)
