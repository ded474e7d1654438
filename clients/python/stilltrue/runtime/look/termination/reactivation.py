"""Callbacks and child processes that will act though no thread is inside application code: part of the look for termination.

Rules:

1. When an executor's item ends, its callbacks and the items queued behind it run.
2. When a child process ends or writes, its protocol is called. Only asyncio's child-watching threads started later count.
3. A process pool works on the items that it has been given since, and its processes may call anybody. When it has finished an
   item, the item's callbacks run.
4. When a channel's connectivity changes, the callbacks subscribed later run.
5. When an alarm set later fires, the signal's handler runs, or the event loop's. When a timer's descriptor expires that was
   set later, so does whoever reads it. A thread that a library in C has started later may call what C was given to call.
6. A child process started later, or an orphan that began later, may call anybody, and nobody else knows of it. It does not
   count once it has been a member for :data:`MEMBER_SECONDS_MIN`, nor while it is a worker of a pool that has no items. A
   child that existed before and has joined since counts likewise: it may be about to make its first call.
7. A child process that existed before has been given work (through a pipe, a queue) if it neither rests nor is where it stood
   at the declaration (:mod:`~stilltrue.runtime.introspection.linux.child_threads`).
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator

from stilltrue.runtime import compat
from stilltrue.runtime.bytecode.qualified_names import qualname_of
from stilltrue.runtime.declared.idle_declaration import IdleDeclaration
from stilltrue.runtime.introspection.frames import variables_of
from stilltrue.runtime.introspection.linux.child_processes import child_processes, clock, joined_at, orphans
from stilltrue.runtime.introspection.linux.child_threads import threads_of
from stilltrue.runtime.introspection.linux.own_timers import armed_timers, threads_of_libraries
from stilltrue.runtime.introspection.origins import acts_for_application
from stilltrue.runtime.introspection.threads_and_tasks import Place, Places
from stilltrue.runtime.look.called_code.given_to_c import clear_caches, functions_given_to_c
from stilltrue.runtime.look.ways_out.kinds.wakers import protocol_methods
from stilltrue.runtime.waits.resolvers.executors import items_behind

MEMBER_SECONDS_MIN = 10.0
"""Longer than a snapshot and its look take together: a member that joined before is part of the snapshot."""
_WAITS_FOR_CHILD = "ThreadedChildWatcher._do_waitpid"


def executor_items(place: Place) -> Iterator[str]:
    """Rule 1, for the thread that runs the item."""
    item = compat.running_item(list(place.frames))
    if item is None:
        return
    for callback in filter(acts_for_application, compat.item_callbacks(item)):
        yield f"{compat.name_of(callback)}, a done callback of an executor item"
    for queued in items_behind(place.frames):
        if acts_for_application(queued.fn):
            yield f"{compat.name_of(queued.fn)}, an item queued for an executor"


def callbacks_of_child_processes(place: Place) -> Iterator[str]:
    """Rule 2, for a thread started later."""
    for frame in place.frames:
        if qualname_of(frame.f_code).endswith(_WAITS_FOR_CHILD):
            for one in variables_of(frame).get("args") or ():
                methods = protocol_methods(one.get_protocol()) if issubclass(type(one), asyncio.SubprocessTransport) else []
                yield from (f"{method.__qualname__}, a callback for a child process" for method in methods)


def process_pools(place: Place, covered: IdleDeclaration | None) -> Iterator[str]:
    """Rule 3, for the thread that receives results from the processes."""
    for frame in place.frames:
        items = frozenset() if covered is None else compat.pool_items(frame) - covered.pool_items
        if items:
            yield f"a process pool with unfinished items: {len(items)}"
        for callback in filter(acts_for_application, compat.result_callbacks(frame)):
            yield f"{compat.name_of(callback)}, a result callback of a process pool"


def subscribers(place: Place) -> Iterator[str]:
    """Rule 4, for the gRPC thread started later for the subscribers."""
    for frame in place.frames:
        for callback in filter(acts_for_application, compat.connectivity_callbacks(frame)):
            yield f"{compat.name_of(callback)}, a connectivity callback of a channel"


def alarms(places: Places, covered: IdleDeclaration | None) -> Iterator[str]:
    """Rule 5."""
    handlers = [compat.signal_handlers_of(loop) for loop in places.loop_threads.values()]
    for timer, seconds in compat.alarms().items():
        if covered is not None and timer in covered.alarms:
            continue
        number = compat.SIGNALS_OF_ALARMS[timer]
        by_loops = [compat.callback_of(one[number])[0] for one in handlers if number in one]
        for handler in filter(acts_for_application, [signal.getsignal(number), *by_loops]):
            yield f"{compat.name_of(handler)}, the {number.name} handler, due in {seconds:.1f} s"


def timers_in_c(covered: IdleDeclaration | None) -> Iterator[str]:
    """Rule 5, for what Python does not show."""
    if covered is None:
        return
    since = "after the idle declaration or the first call"
    for descriptor, seconds in armed_timers().items():
        if descriptor not in covered.descriptors:
            yield f"the timer of descriptor {descriptor} (timerfd), set {since}, due in {seconds:.1f} s"
    started = [(thread, name) for thread, name in threads_of_libraries(compat.native_ids()) if thread not in covered.libraries]
    given = next(filter(acts_for_application, functions_given_to_c()), None) if started else None
    clear_caches()
    if given is not None:
        thread, name = started[0]
        yield f"{compat.name_of(given)}, which code in C may call: its thread {name} ({thread}) started {since}"


def child_processes_at_work(places: Places, covered: IdleDeclaration | None) -> Iterator[str]:
    """Rules 6 and 7."""
    if covered is None:
        return
    children = child_processes()
    children += orphans(covered.since_ticks, {child.pid for child in children})
    frames = (frame for place in places.threads.values() for frame in place.frames) if children else ()
    idle = {pid for frame in frames for pid in compat.idle_pool_processes(frame)}
    for child in children:
        joined = None if child.pid in idle else joined_at(child)
        if child.pid in idle or (joined is not None and clock() - joined >= MEMBER_SECONDS_MIN):
            continue
        state = "which has not joined" if joined is None else "which has just joined"
        name = f"child process {child.pid} ({child.name}), {state}"
        if child.key not in covered.children:
            yield f"{name}, started after the idle declaration or the first call"
        elif joined is not None and child.key not in covered.members:
            yield f"{name}, after the idle declaration or the first call"
        elif joined is None and threads_of([child])[child.key].is_at_work(covered.standing_children.get(child.key)):
            yield f"{name}, at work since the idle declaration or the first call"
