"""The objects that refer to an object, and those that refer to these: rules 1 and 4 to 11 of
:mod:`~stilltrue.runtime.waits.reachability.references.thread_reach`.
"""

from __future__ import annotations

import asyncio
import functools
import gc
import sys
import threading
import time
import weakref
from itertools import chain
from types import (
    AsyncGeneratorType,
    BuiltinMethodType,
    CoroutineType,
    FrameType,
    FunctionType,
    GeneratorType,
    MethodType,
    ModuleType,
)
from typing import Any

from stilltrue.runtime import compat
from stilltrue.runtime.introspection.collector import referrers_of
from stilltrue.runtime.introspection.frames import no_collection
from stilltrue.runtime.introspection.origins import is_application, is_ours
from stilltrue.runtime.introspection.tasks import Task
from stilltrue.runtime.look.code.attributes import attribute_of
from stilltrue.runtime.waits.pipes.queue_feeders import is_idle_feeder
from stilltrue.runtime.waits.reachability.loops.loop_contents import is_running, reads_again
from stilltrue.runtime.waits.reachability.loops.stopped_loops import is_of_stopped_loop, that_may_run
from stilltrue.runtime.waits.reachability.names.module_names import functions_naming, module_with, record_global
from stilltrue.runtime.waits.reachability.names.own_classes import is_own_class
from stilltrue.runtime.waits.reachability.references.frame_references import is_read_again
from stilltrue.runtime.waits.reachability.references.leading_objects import REQUESTS, Global, LeadingObjects
from stilltrue.runtime.waits.resolvers.locks import LOCK

LEADING_MAX = 2_000
"""Maximum number of objects that lead to the wanted ones."""
_OPEN = (type, weakref.ref, CoroutineType, AsyncGeneratorType, asyncio.Future, asyncio.AbstractEventLoop, ModuleType)
_OF_FILES = {
    ("subprocess", "Popen"),
    *(("_io", one) for one in ("FileIO", "BufferedReader", "BufferedWriter", "TextIOWrapper")),
}
_FINALIZED = frozenset({("stilltrue.sync.server", "_Replies"), ("multiprocessing.connection", "Connection"), *_OF_FILES})
"""Classes whose finalizers only close files, or drop what the application gave them, which have no other holder by then."""
_KEEPING_METHODS = {
    ("grpc._server", "_ServerState"): ("generic_handlers", "registered_method_handlers", "interceptor_pipeline", "thread_pool"),
    ("stilltrue.sync.server", "RecordedServer"): ("_known", "_classes"),
    ("stilltrue.aio.server", "RecordedAioServer"): ("_known", "_classes"),
    ("stilltrue.runtime.calls.handler_classes", "HandlerClasses"): ("known", "_alike"),
}
"""The attributes by which a server and the agent's interceptor keep methods, by the class (rule 7). The pool has requests."""
_RECORDED = frozenset({"stilltrue.sync.server", "stilltrue.aio.server"})
"""The modules of the classes that the agent makes, each of which keeps one method."""
_ENTERING = frozenset({"__enter__", "acquire"})
_CALLS_BACK = frozenset({"ctypes", "_ctypes", "_cffi_backend"})
"""Modules of objects by which C calls Python functions."""
_CACHE: Any = type(functools.lru_cache(lambda: None))
_OF_THREADS = threading.Thread().__dict__.keys()


def lead(found: LeadingObjects, todo: list[Any]) -> None:
    """Find the objects that lead to ``todo``."""
    named: set[Global] = set()
    while todo and found.is_whole:
        for one in todo:
            found.things[id(one)] = one
        todo = _referrers_of(todo, found)
        more = set(found.names) - named
        if not todo and more:
            todo = functions_naming(set(found.names), found)
            named |= more
        if len(found.things) + len(todo) > LEADING_MAX or time.thread_time() > found.until:
            found.is_whole = False


def _referrers_of(level: list[Any], found: LeadingObjects) -> list[Any]:
    """The objects that refer to this level and lead further."""
    asked = tuple(level)
    ours = {id(asked), id(level), id(found.things), id(found.holders)}
    wanted = set(map(id, level))
    further: dict[int, Any] = {}
    with no_collection:
        holders = referrers_of(asked)
    shown = set(map(id, holders))
    hidden = chain(found.loops.stopped, *(found.loops.finished.get(one, ()) for one in wanted))
    tasks = {id(one): one for weak in hidden if (one := weak()) is not None and id(one) not in shown}
    for holder in chain(holders, tasks.values()):
        if id(holder) in ours or (type(holder) is FrameType and _is_running(holder, found)):
            continue
        for held in set(map(id, gc.get_referents(holder))) & wanted:
            if _is_globals(holder):
                module = record_global(holder, held, found)
                if module is not None and id(module) not in found.things:
                    further[id(module)] = module
            elif _leads(holder, held, found):
                found.referrers.setdefault(held, set()).add(id(holder))
                if id(holder) not in found.things:
                    further[id(holder)] = holder
        if id(holder) not in further and id(holder) not in found.things:
            found.holders[id(holder)] = holder
        else:  # it may have led nowhere from another object
            found.holders.pop(id(holder), None)
    return list(further.values())


def _leads(holder: Any, held: int, found: LeadingObjects) -> bool:
    """Whether the search goes on from ``holder`` to its own referrers; if not, records what that means for ``held``."""
    kind = type(holder)
    if id(holder) in found.loops.scheduled:
        found.reachers.setdefault(held, set()).add(found.loops.reacher(id(holder)))
        return False
    paused = kind is GeneratorType and not is_running(holder)
    if paused or id(holder) in found.loops.running or id(holder) in found.loops.suspended:
        return _coroutine_leads(holder, held, found)
    if is_of_stopped_loop(holder, found.loops.of_stopped) or compat.is_finished_task(holder):
        return True
    if _is_of_library(holder) or any(records(holder, held, found) for records in (_record_method, _record_set_loop, _lists)):
        return False
    if kind is threading.Thread and holder.ident in found.running and holder.__dict__.keys() <= _OF_THREADS:
        frames = found.running[holder.ident]
        if not is_idle_feeder(frames) and not any(is_application(one.f_code) for one in frames):
            found.reachers.setdefault(held, set()).add(holder.ident)
        return False
    by_c = any(compat.module_of(base) in _CALLS_BACK for base in kind.__mro__)
    is_open = by_c or (issubclass(kind, _OPEN) and not is_own_class(holder))
    found.unknown |= {held} if is_open else set()
    found.finalized |= {id(holder)} if not is_open and _is_finalized(kind) else set()
    return not is_open


def _is_finalized(kind: type) -> bool:
    """Whether objects of a class run code when they are released (rule 11)."""
    known = (compat.module_of(kind), kind.__name__) in _FINALIZED
    return not known and any("__del__" in base.__dict__ for base in kind.__mro__)


def _lists(holder: Any, held: int, found: LeadingObjects) -> bool:
    """Whether it lists all modules, which are found by name, or all live threads, each of which has its own thread object."""
    thing = found.things[held]
    if holder is threading._active:  # type: ignore[attr-defined]  # noqa: SLF001 - there is no public API
        ident = attribute_of(thing, "_ident")  # as current_thread() returns it
        found.reachers.setdefault(held, set()).update({ident} if type(ident) is int else ())
        return True
    return holder is sys.modules and type(thing) is ModuleType


def _is_globals(holder: Any) -> bool:
    """Whether it is the globals dictionary of a module."""
    return issubclass(type(holder), dict) and (dict.__contains__(holder, "__builtins__") or module_with(holder) is not None)


def _record_method(holder: Any, held: int, found: LeadingObjects) -> bool:
    """Record that an object is among the methods that ``holder`` keeps to call them for requests (rule 7); whether it is."""
    if issubclass(type(holder), type):
        keeps = any(compat.module_of(base) in _RECORDED for base in type.__getattribute__(holder, "__mro__"))
    else:
        names = _KEEPING_METHODS.get((compat.module_of(type(holder)), type(holder).__name__), ())
        keeps = any(id(getattr(holder, name, None)) == held for name in names)
        keeps = keeps or type(holder) is compat.MethodTables or compat.keeps_methods_of_aio_server(holder)
    if keeps:
        found.reachers.setdefault(held, set()).add(REQUESTS)
    return keeps


def _record_set_loop(holder: Any, held: int, found: LeadingObjects) -> bool:
    """Record who has a loop that was set for a thread (rule 9); whether ``holder`` is where it was set."""
    is_set = compat.is_current_loop_of_thread(holder, found.things[held])
    if is_set:
        found.reachers.setdefault(held, set()).update(that_may_run(found.running))
    return is_set


def _coroutine_leads(coroutine: Any, held: int, found: LeadingObjects) -> bool:
    """As :func:`_leads`, for a coroutine or generator (rule 6)."""
    again = bool(found.finalized) or type(found.things[held]) is GeneratorType or reads_again(coroutine, held, is_read_again)
    by: int | Task | None = found.loops.running.get(id(coroutine))
    task = found.loops.suspended.get(id(coroutine))
    by = found.loops.reacher(task) if by is None and task is not None and type(coroutine) is not GeneratorType else by
    if again and by is not None:
        found.reachers.setdefault(held, set()).add(by)
    return again and by is None


def _is_of_library(holder: Any) -> bool:
    """Whether it starts a thread, only tells an executor's threads to end (rule 8), or is a cache of the agent's.

    A tuple of nothing but gRPC's function that feeds a request stream is what gRPC calls its thread with.
    """
    if type(holder) is tuple and len(holder) == 1 and compat.feeds_stream(holder[0]):
        return True
    return _begins(holder) or _is_entering(holder) or compat.only_ends_executors_threads(holder) or _is_own_cache(holder)


def _is_own_cache(holder: Any) -> bool:
    """Whether it is a cache of the agent's, which keeps classes, for example."""
    function = getattr(holder, "__wrapped__", None) if type(holder) is _CACHE else None
    return type(function) is FunctionType and is_ours(function.__code__)


def _is_entering(holder: Any) -> bool:
    """Whether it is the bound method by which a thread enters the block of a lock, or calls ``acquire()``."""
    return issubclass(type(holder), BuiltinMethodType) and type(holder.__self__) is LOCK and holder.__name__ in _ENTERING


def _begins(holder: Any) -> bool:
    """Whether it is the bound method that starts a thread."""
    return type(holder) is MethodType and holder.__func__ is threading.Thread._bootstrap  # type: ignore[attr-defined]  # noqa: SLF001


def _is_running(frame: FrameType, found: LeadingObjects) -> bool:
    return any(one is frame for frames in found.running.values() for one in frames)
