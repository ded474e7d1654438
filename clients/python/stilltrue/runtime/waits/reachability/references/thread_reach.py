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

import inspect
import queue
import sys
from collections import Counter
from collections.abc import Iterable
from functools import partial
from types import BuiltinMethodType, CoroutineType, GeneratorType, MethodType
from typing import Any

from stilltrue.runtime import compat, own_packages
from stilltrue.runtime.introspection.origins import is_application
from stilltrue.runtime.introspection.tasks import Task
from stilltrue.runtime.own_ref import OwnRef
from stilltrue.runtime.waits.orphaned_locks.census import can_list_objects
from stilltrue.runtime.waits.reachability.loops.loop_contents import is_running, read_loops
from stilltrue.runtime.waits.reachability.names.code_names import census, comes_by_anything
from stilltrue.runtime.waits.reachability.names.hidden_access import lists_under_another_name
from stilltrue.runtime.waits.reachability.names.module_names import may_be_reached_otherwise, read_own_code
from stilltrue.runtime.waits.reachability.references.frame_references import read_frames
from stilltrue.runtime.waits.reachability.references.leading_objects import (
    KEPT_METHOD,
    LOOP_TO_RUN,
    REQUESTS,
    Frames,
    LeadingObjects,
)
from stilltrue.runtime.waits.reachability.references.reference_counts import never_accounted_for
from stilltrue.runtime.waits.reachability.references.referrers import lead
from stilltrue.runtime.waits.resolvers.locks import LOCK

_FINISHED_WHEN_DROPPED = (GeneratorType, CoroutineType)
_KNOWN_METHODS = frozenset({"builtins", "grpc", "stilltrue"})
"""The packages of classes whose methods are known: none ends a wait of the application's without being mentioned."""
_COMPILED = (queue.SimpleQueue, LOCK)


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
        lead(found, [one for one in (weak() for weak in wanted) if one is not None])
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
        found.unknown |= set(never_accounted_for(found))
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


def _runs_when_dropped(thing: Any) -> bool:
    """Whether it is a generator or coroutine whose rest runs when nobody refers to it any more."""
    begun = type(thing) is not CoroutineType or inspect.getcoroutinestate(thing) != inspect.CORO_CREATED
    return type(thing) in _FINISHED_WHEN_DROPPED and begun and not is_running(thing)
