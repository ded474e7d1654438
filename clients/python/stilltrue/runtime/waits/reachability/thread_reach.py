"""Finds the threads and tasks that can reach an object, and proves that nothing else can: every reference is accounted for.

Rules:

1. The objects that refer to an object lead to it, and so do those that refer to these, and so on. The search ends at the
   variables of threads' frames, at threads that have not reached the application's code yet, and at names: the globals of the
   application's own modules. Functions that can reach such a global lead to it, and frames that may still do so are reachers
   (:mod:`~stilltrue.runtime.waits.reachability.names.module_names`).
2. The interpreter's reference counts decide: either every reference to each of these objects is known, or an unknown holder has
   one: a compiled extension, a signal handler, a running thread. The counts, and what the known holders refer to, are read in
   one step, during which no other code runs. A thread in the middle of a statement is an unknown holder for a moment, so
   failing that, they are read again a little later.
3. A variable that its frame never reads again leads nowhere; nor does one of the standard library's own waits, nor one of the
   thread that sends a queue's items while it has none. But a wait at a barrier that times out breaks it for all.
4. Any other referrer makes the reachers unknown: a library's class or module, a weak reference that is not the agent's own. The
   application's own classes lead further (:mod:`~stilltrue.runtime.waits.reachability.names.own_classes`).
5. A party that has a thread does not have what the thread was started with, but does have its other attributes, of a derived
   class or set later. If some code of the application asks for all threads or all frames, it may reach anything.
6. What a coroutine refers to, its task or thread can reach (:mod:`~stilltrue.runtime.waits.reachability.loops.loop_contents`),
   and so can the thread of a loop what that has scheduled. Any other reference to a coroutine of a task leads nowhere. What a
   suspended generator refers to, whoever has the generator can reach.
7. What the methods and interceptors of a gRPC server lead to is reached by requests to come: :data:`REQUESTS`. The agent keeps
   the methods of the servers that it records as well, only to call them for a request.
8. The threads of an executor can reach the items in its queue, and so can any party that has the executor. What
   ``concurrent.futures`` keeps to tell these threads to end only adds to the queue.
9. What an event loop that no thread runs has scheduled, and what its tasks refer to, any party can reach that has the loop, a
   task or a future of it: the party may run the loop (:mod:`~stilltrue.runtime.waits.reachability.loops.stopped_loops`).
10. A task that has ended leads to whoever has it: it keeps its result, or its error with the frames of that.
11. An object with a finalizer (``__del__``) leads to whoever has it, also in a variable that is never read again: who drops the
    last reference runs the finalizer. If nobody is found to have one, the next collection may run it, so the reachers are
    unknown.
"""

from __future__ import annotations

import asyncio
import functools
import gc
import inspect
import queue
import sys
import threading
import time
import weakref
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial
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

from stilltrue.runtime import compat, own_packages
from stilltrue.runtime.bytecode.instructions import opname_at
from stilltrue.runtime.bytecode.stack_heights import arguments_of, has_options, kept_in_call, leaves_block
from stilltrue.runtime.concurrent_reads import items_of
from stilltrue.runtime.introspection.collector import referrers_of
from stilltrue.runtime.introspection.frames import no_collection, variables_of
from stilltrue.runtime.introspection.origins import feeds_requests, is_application, is_ours
from stilltrue.runtime.introspection.tasks import Task
from stilltrue.runtime.look.code.attributes import attribute_of
from stilltrue.runtime.own_ref import OwnRef
from stilltrue.runtime.waits.holders.with_blocks import exits_of
from stilltrue.runtime.waits.orphaned_locks.census import can_list_objects
from stilltrue.runtime.waits.pipes.queue_feeders import is_idle_feeder
from stilltrue.runtime.waits.reachability.leading_objects import Frames, Global, LeadingObjects
from stilltrue.runtime.waits.reachability.loops.loop_contents import is_running, read_loops, reads_again
from stilltrue.runtime.waits.reachability.loops.stopped_loops import is_of_stopped_loop, that_may_run
from stilltrue.runtime.waits.reachability.names.code_names import (
    LOCALS,
    census,
    comes_by_anything,
    names_ahead,
)
from stilltrue.runtime.waits.reachability.names.hidden_access import lists_under_another_name
from stilltrue.runtime.waits.reachability.names.module_names import (
    functions_naming,
    may_be_reached_otherwise,
    module_with,
    read_own_code,
    record_global,
)
from stilltrue.runtime.waits.reachability.names.own_classes import is_followed, is_own_class
from stilltrue.runtime.waits.resolvers.locks import LOCK

LEADING_MAX = 2_000
"""Maximum number of objects that lead to the wanted ones."""
AGAIN_SECONDS = (0.002, 0.02, 0.1)
"""The pauses before the counts are read again (rule 2)."""
_SUSPENDED = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_CALLING = frozenset({"CALL", "PRECALL"})
_NEXT_WITH = 3
"""Number of stack slots kept in ``next(requests)``, which is all that those who feed a request stream call while they wait."""
_LEFT_WITH = 4
"""Likewise in a call of a block's exit: that, and its arguments."""
_KEEPS_EXIT = sys.version_info >= (3, 12)
"""Whether only the interpreter has the exit of a block that a frame enters; an earlier version puts it on the stack first."""
_FINISHED_WHEN_DROPPED = (GeneratorType, CoroutineType)
_WAITS = frozenset({threading.__file__, queue.__file__})
_TIMERS = frozenset({threading.Timer.run.__code__})
_BARRIERS = (threading.Barrier.wait.__code__, threading.Barrier._wait.__code__)  # type: ignore[attr-defined]  # noqa: SLF001
_CALLS_PREDICATE = threading.Condition.wait_for.__code__
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
REQUESTS = -2
"""Stands for the threads that will serve requests, among those that can reach an object."""
LOOP_TO_RUN = -3
"""Among them if these can reach an event loop that no thread runs (rule 9)."""
KEPT_METHOD = -4
"""Among them if these can reach a kept ``event.set`` or the like, which ends the wait without being mentioned.

So may the methods of a library's object that run without a name: the exit of its block, a property, an operator.
"""
MARKS = frozenset({REQUESTS, LOOP_TO_RUN, KEPT_METHOD})
_KNOWN_METHODS = frozenset({"builtins", "grpc", "stilltrue"})
"""The packages of classes whose methods are known: none ends a wait of the application's without being mentioned."""
_PROBE = -1
_COMPILED = (queue.SimpleQueue, LOCK)
_ENTERING = frozenset({"__enter__", "acquire"})
_CALLS_BACK = frozenset({"ctypes", "_ctypes", "_cffi_backend"})
"""Modules of objects by which C calls Python functions."""
_CACHE: Any = type(functools.lru_cache(lambda: None))
_OF_THREADS = threading.Thread().__dict__.keys()


def leading_to(wanted: Iterable[OwnRef], running: Frames, until: float) -> LeadingObjects:
    """The objects that lead to ``wanted``; ``running``: the frames of all threads, ``until``: this thread's processor time."""
    found = LeadingObjects(running, until)
    if not can_list_objects() or not getattr(sys, "_is_gil_enabled", lambda: True)():
        found.is_whole = False
    else:
        with_dictionaries = [object.__getattribute__(one, "__dict__") for one in compat.threads().values()]
        read_frames(found, Counter(), known_only=True)  # reading attributes creates __dict__ objects, here before they count
        del with_dictionaries
        found.loops = read_loops(running, lambda: census()[1])
        functions, paused = census()
        read_own_code(found, functions, paused)
        del functions, paused
        _lead(found, [one for one in (weak() for weak in wanted) if one is not None])
        found.keeps_generators = bool(found.finalized) or any(map(_runs_when_dropped, found.things.values()))
        read_frames(found, Counter(), known_only=False)
        codes = [code for _, code, _ in found.functions]
        codes += [frame.f_code for frames in running.values() for frame in frames]
        any_code = any(comes_by_anything(code) for code in codes) or lists_under_another_name(found.own)
        any_code = any_code or (bool(found.names) and may_be_reached_otherwise(found))
        found.is_whole = found.is_whole and not any_code
        found.functions.clear()
        found.paused.clear()
    if found.is_whole:
        found.unknown |= set(_never_accounted_for(found))
    return found


def reached_by(wanted: Iterable[int], found: LeadingObjects) -> frozenset[int | Task] | None:
    """The threads and tasks that can reach one of the objects with these identities.

    None unless it is proved that nothing else can. There may be :data:`MARKS` among them, which are no threads.
    """
    if not found.is_whole:
        return None
    seen = dict.fromkeys(wanted)
    todo = list(seen)
    reachers: set[int | Task] = set()
    while todo:
        one = todo.pop()
        if one in found.unknown or one not in found.things:
            return None
        reachers |= found.reachers.get(one, set())
        for holder in found.referrers.get(one, ()):
            if holder not in seen:
                seen[holder] = None
                todo.append(holder)
    if not all(_is_kept(one, found) for one in found.finalized.intersection(seen)):
        return None
    by_method = any(_is_librarys_method(found.things[one]) for one in seen)
    by_method = by_method or any(map(_is_of_librarys_class, {type(found.things[one]) for one in seen}))
    if REQUESTS in reachers and by_method:
        return None
    reachers |= {KEPT_METHOD} if by_method else set()
    reachers |= {LOOP_TO_RUN} if any(compat.is_stopped_loop(found.things[one]) for one in seen) else set()
    return frozenset(reachers)


def _is_kept(one: int, found: LeadingObjects) -> bool:
    """Whether a thread, a task or a global leads to an object (rule 11). Others may be garbage."""
    globals_ = set().union(*found.names.values())
    seen, todo = {one}, [one]
    while todo:
        this = todo.pop()
        if this in globals_ or found.reachers.get(this):
            return True
        further = found.referrers.get(this, set()) - seen
        seen |= further
        todo += further
    return False


def _is_librarys_method(thing: Any) -> bool:
    """Whether it is a kept ``event.set``: whoever gets that can end the wait without mentioning it.

    No block's exit is one, nor what only a loop of asyncio's calls.
    """
    if type(thing) is MethodType and compat.is_asyncio_internal(thing):
        return False
    if type(thing) is partial or (issubclass(type(thing), BuiltinMethodType) and type(thing.__self__) in _COMPILED):
        return True
    code, _, _ = compat.code_behind(thing) if type(thing) is MethodType else (None, {}, None)
    return code is not None and not is_application(code) and not code.co_name.startswith("__")


def _is_of_librarys_class(kind: type) -> bool:
    """Whether an installed library has written a class or one of its bases."""
    return any(own_packages.is_installed_library(file) for base in kind.__mro__ if (file := _file_of(base)) is not None)


def _file_of(kind: type) -> str | None:
    """The file of the module in which a class was made, if that is none of gRPC's or of the agent's."""
    module = compat.module_of(kind)
    return None if module.partition(".")[0] in _KNOWN_METHODS else own_packages.file_of(module)


# -- references (rule 1) -----------------------------------------------------------------------------------------------


def _lead(found: LeadingObjects, todo: list[Any]) -> None:
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
    if (
        _is_of_library(holder)
        or _is_entering(holder)
        or any(records(holder, held, found) for records in (_record_method, _record_set_loop, _lists))
    ):
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
    again = bool(found.finalized) or type(found.things[held]) is GeneratorType or reads_again(coroutine, held, _is_read_again)
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


# -- frames (rules 1 and 3) --------------------------------------------------------------------------------------------


def read_frames(found: LeadingObjects, known: Counter[int], *, known_only: bool) -> None:
    """Count the references from threads' frames and, unless ``known_only``, record the threads that reach the objects."""
    for ident, frames in found.running.items():
        leads = not known_only and not is_idle_feeder(frames)
        for index, frame in enumerate(frames):
            for held, name in _held_by(frame, frames[index - 1] if index else None, found):
                known[held] += 1
                if leads and name is not None:
                    found.reachers.setdefault(held, set()).add(ident)


def _held_by(frame: FrameType, called: FrameType | None, found: LeadingObjects) -> Iterator[tuple[int, str | None]]:
    """The ``things`` to which a frame refers, once per reference, with the variable's name; None: it never reads it again.

    ``called``: the frame that it has called.
    """
    code = frame.f_code
    if code.co_flags & _SUSPENDED and id(frame) not in found.loops.hidden:  # its generator or coroutine is a referrer itself
        return
    slots = _slots_of_feeder(frame, called)
    compiled = called is None or compat.is_called_inline(called) is False
    kept = kept_in_call(code, frame.f_lasti, compiled=compiled) if slots is None else None
    read = compat.frame_references(frame, slots or kept or 0)
    if read is None:
        found.is_whole = False
        return
    if kept and compiled and called is not None:
        _correct(read[1], frame, called, kept, found)
    yield from ((one, None) for one in read[:1] if one in found.things)
    waits = code.co_filename in _WAITS and code not in _TIMERS and _is_librarys_own(frame) and not _may_break(frame)
    for name, held in read[1]:
        if held in found.things:
            is_called = name == "predicate" and code is _CALLS_PREDICATE and not _is_of_wait(found.things[held])
            leads_nowhere = (waits and not is_called) or held in found.loops.suspended
            dropped = name and not found.keeps_generators and not _is_read_again(frame, name)
            yield held, None if leads_nowhere or dropped else name
    if kept is not None and compiled and called is not None:
        more = (*_copied_for(called, frame, kept), *_kept_while_made(read[1], frame, called, kept, found))
        yield from ((one, None) for one in more if one in found.things)
    yield from ((one, None) for one in (_kept_while_entered(frame, called, found) if called is not None else ()))
    exits = exits_of(frame) if kept is None and _has_methods(found) else []  # else they have been read with the stack
    yield from ((id(one), None if waits else "") for one in exits if one is not None and id(one) in found.things)


def _runs_when_dropped(thing: Any) -> bool:
    """Whether it is a generator or coroutine whose rest runs when nobody refers to it any more."""
    begun = type(thing) is not CoroutineType or inspect.getcoroutinestate(thing) != inspect.CORO_CREATED
    return type(thing) in _FINISHED_WHEN_DROPPED and begun and not is_running(thing)


def _is_of_wait(function: Any) -> bool:
    """Whether it is a function of the standard library's own, such as the one by which a barrier waits."""
    return type(function) is FunctionType and function.__code__.co_filename in _WAITS


def _is_librarys_own(frame: FrameType) -> bool:
    """Whether a frame of ``threading`` or ``queue`` is not of a class that the application has derived from theirs."""
    return compat.module_of(type(variables_of(frame).get("self"))) in ("threading", "queue", "builtins", "NoneType")


def _may_break(frame: FrameType) -> bool:
    """Whether a frame waits at a barrier with a timeout."""
    return frame.f_code in _BARRIERS and variables_of(frame).get("timeout") is not None


def _correct(places: list[tuple[str, int]], frame: FrameType, called: FrameType, kept: int, found: LeadingObjects) -> None:
    """Correct what a frame's stack shows, in ``places``, where a call has put something else there, or has taken it away."""
    code, at = frame.f_code, frame.f_lasti
    if leaves_block(code, at):
        places[-_LEFT_WITH] = "", _exit_called(places[-_LEFT_WITH][1], called, found)
    elif opname_at(code, at) == "CALL_FUNCTION_EX":
        arguments = -2 if has_options(code, at) else -1
        if type(compat.stack_value_at(frame, at, kept + arguments)) is not tuple:  # a list, say, became one, and may be gone
            places[arguments] = "", 0


def _exit_called(held: int, called: FrameType, found: LeadingObjects) -> int:
    """The exit method of the block that is left, of which the stack shows only the object: a method has put that into its
    own place while it is called. ``held`` is what the stack shows.
    """
    if type(found.things.get(held)) is MethodType:
        return held
    methods = (one for one in found.things.values() if type(one) is MethodType and id(one.__self__) == held)
    return next((id(one) for one in methods if compat.code_behind(one)[0] is called.f_code), held)


def _copied_for(called: FrameType, frame: FrameType, kept: int) -> list[int]:
    """The arguments of ``function(*arguments, **options)`` in a frame that keeps so many values on its stack, by identity.

    The interpreter has copied them for the function, if there are any options.
    """
    at = frame.f_lasti
    if not has_options(frame.f_code, at):
        return []
    function, arguments, options = (compat.stack_value_at(frame, at, kept - depth) for depth in (3, 2, 1))
    is_of_function = type(function) in (FunctionType, MethodType) and compat.code_behind(function)[0] is called.f_code
    if not is_of_function or type(arguments) is not tuple or type(options) is not dict or not options:
        return []
    return [*map(id, arguments), *map(id, options.values())]


def _kept_while_entered(frame: FrameType, called: FrameType, found: LeadingObjects) -> Iterator[int]:
    """The methods, by identity, that the interpreter keeps while a frame enters a block by a method written in Python."""
    if not _has_methods(found) or opname_at(frame.f_code, frame.f_lasti) != "BEFORE_WITH":
        return
    entered = variables_of(called).get(next(iter(called.f_code.co_varnames), ""))
    methods = [one for one in found.things.values() if type(one) is MethodType and one.__self__ is entered]
    of_entering = [one for one in methods if compat.code_behind(one)[0] is called.f_code]
    of_leaving = [one for one in methods if one.__name__ == "__exit__"] if _KEEPS_EXIT else []
    for those in (of_entering, of_leaving):
        if len(those) == 1:  # of several, which one is not known
            yield id(those[0])


def _kept_while_made(
    places: list[tuple[str, int]], frame: FrameType, called: FrameType, kept: int, found: LeadingObjects
) -> list[int]:
    """The new object and the tuple of its arguments, by identity, while a class whose ``__init__`` runs makes the object.

    ``places``: what the frame's stack shows, ``kept`` values. Arguments by name are not known.
    """
    at = frame.f_lasti
    count = arguments_of(frame.f_code, at) if called.f_code.co_name == "__init__" else None
    if count is None or count + 2 > kept:
        return []
    if not any(issubclass(type(compat.stack_value_at(frame, at, kept - count - below)), type) for below in (1, 2)):
        return []
    given = [one for _, one in places[len(places) - count :]]
    tuples = [id(one) for one in found.things.values() if type(one) is tuple and given == [*map(id, one)]]
    made = variables_of(called).get(next(iter(called.f_code.co_varnames), ""))
    return [id(made), *tuples] if len(tuples) <= 1 else []


def _slots_of_feeder(frame: FrameType, called: FrameType | None) -> int | None:
    """The number of stack slots in which a frame that feeds a request stream keeps what it calls; None for any other."""
    asks = called is not None and feeds_requests(called.f_code)
    feeds = (asks and compat.is_feeding(frame)) or feeds_requests(frame.f_code)
    return _NEXT_WITH if feeds and opname_at(frame.f_code, frame.f_lasti) in _CALLING else None


def _has_methods(found: LeadingObjects) -> bool:
    return any(type(one) is MethodType for one in found.things.values())


def _is_read_again(frame: FrameType, name: str) -> bool:
    if not is_application(frame.f_code):
        return True
    return name in names_ahead(frame) or not LOCALS.isdisjoint(frame.f_code.co_names)


# -- the proof (rules 2 and 4) -----------------------------------------------------------------------------------------


def _never_accounted_for(found: LeadingObjects) -> list[int]:
    """The objects to which an unknown holder refers, also when the counts are read again (rule 2)."""
    left = _not_accounted_for(found)
    for seconds in AGAIN_SECONDS:
        if not left or time.thread_time() > found.until:
            break
        time.sleep(seconds)
        read_frames(found, Counter(), known_only=False)
        left = _not_accounted_for(found)
    return left


def _not_accounted_for(found: LeadingObjects) -> list[int]:
    """The objects to which an unknown holder refers."""
    known, again = Counter[int](), Counter[int]()
    read_frames(found, known, known_only=True)
    found.things[_PROBE] = object()
    keys, things = list(found.things), list(found.things.values())
    holders = [*things, *found.holders.values()]
    with no_collection:
        read: list[Any] = list(
            chain(map(sys.getrefcount, things), map(gc.get_referents, holders), map(weakref.getweakrefs, things))
        )
    read_frames(found, again, known_only=True)
    del found.things[_PROBE]
    if again != known:
        return keys
    counts, rest = read[: len(things)], read[len(things) :]
    known.update(id(held) for referents in rest[: len(holders)] for held in referents)
    weak = dict(zip(keys, rest[len(holders) :], strict=True))
    every = zip(keys[:-1], counts, strict=False)
    return [key for key, count in every if count - counts[-1] != known[key] or _is_followed(found.things[key], weak[key])]


def _is_followed(thing: Any, weak: list[Any]) -> bool:
    """Whether one of the weak references is not the agent's, ``threading``'s, ``concurrent.futures``' or a base class's.

    Those by which ``multiprocessing`` finds its objects after a fork, in the child, or cleans up after them, do not count.
    """
    if issubclass(type(thing), type):
        return is_followed(thing, weak)
    every = set(map(id, threading._dangling.data.copy()))  # type: ignore[attr-defined]  # noqa: SLF001 - all threads
    every.update(map(id, _after_forks()))
    if is_of_stopped_loop(thing) or compat.is_finished_task(thing):  # asyncio lists all tasks
        weak = [one for one in weak if not compat.is_registry_ref(one)]
    others = (one for one in weak if type(one) is not OwnRef and id(one) not in every)
    return not all(compat.only_ends_executors_threads(one.__callback__) or _cleans_up(one.__callback__) for one in others)


def _after_forks() -> list[Any]:
    util = sys.modules.get("multiprocessing.util")
    registered = attribute_of(getattr(util, "_afterfork_registry", None), "data")
    return [weak for _, weak in items_of(registered)] if type(registered) is dict else []


def _cleans_up(callback: Any) -> bool:
    return (compat.module_of(type(callback)), type(callback).__name__) == ("multiprocessing.util", "Finalize")
