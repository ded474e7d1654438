"""Whether threads and tasks make progress or wait for ever, as far as their frames and awaits show.

Rules:

1. A party with a recorded wait makes progress when its wait ends; the detector knows about that. A task whose loop is blocked
   does so when its loop runs again, unless what it awaits never comes.
2. A wait without a timeout for a thread, task or future ends with it. A wait for an event, condition or queue ends when an
   actor that makes progress can reach the object and its code mentions setting, feeding or releasing it.
3. A loop that runs for ever returns when an actor that makes progress can reach it and mentions stopping it; a loop that runs
   until a task ends returns when such an actor calls the loop's own ``stop``. ``wait_for_termination()``, waits for signals,
   the sleep of aiohttp's ``run_app()`` and reads of standard input end only from outside: by an operator, or by a party that
   stops the server, which is found separately.
4. All others make progress: running, sleeping, waiting with a timeout, or waiting in an unknown way.
5. A party that polls a flag in a loop makes progress within the loop, and beyond it only if an actor that makes progress
   changes the flag.
6. A task makes progress when it is cancelled: by a timer of its loop, by a failing sibling in its task group, together with its
   awaiters, by an actor that makes progress, can reach it and mentions cancelling; and, if it serves a call, by its caller.
7. A task that runs the client interceptors of a call, and awaits the call, makes progress when its caller's wait ends.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Container, Iterable, Iterator
from concurrent.futures import Future
from itertools import chain, takewhile
from types import FrameType, FunctionType
from typing import Any

from stilltrue.model import PartyName
from stilltrue.runtime import compat
from stilltrue.runtime.introspection.cut.client_interceptors import awaits_call
from stilltrue.runtime.introspection.frames import variables_of
from stilltrue.runtime.introspection.origins import is_application
from stilltrue.runtime.introspection.tasks import Task, awaiters, blocking_future, read, siblings_of, timers
from stilltrue.runtime.introspection.threads_and_tasks import Place, Places
from stilltrue.runtime.look.budget import Budget
from stilltrue.runtime.look.code.attributes import inherited
from stilltrue.runtime.look.code.conditions import Condition
from stilltrue.runtime.look.code.instructions_ahead import arguments_at, names_at
from stilltrue.runtime.look.progress.code_to_run import CodeToRun
from stilltrue.runtime.look.progress.flags import Flag, Kind, flags_of
from stilltrue.runtime.look.progress.progress import BY_ITSELF, NEVER, Progress, any_of
from stilltrue.runtime.look.progress.stack_ahead import Stretch, frames_of_task, returns
from stilltrue.runtime.look.progress.wakers_reach import WakersReach
from stilltrue.runtime.look.ways_out.kinds.failure_hooks import Hook
from stilltrue.runtime.look.ways_out.kinds.wakers import (
    Callback,
    callback_may_wake,
    may_wake,
    signal_callbacks,
    waking_names,
    waking_names_far_away,
)
from stilltrue.runtime.look.ways_out.reach import Reach
from stilltrue.runtime.transport.blocked_servers import caller_at

_STOPPING = frozenset({"stop"})
_CANCELLING = frozenset({"cancel", "throw", "cancel_scope", "all_tasks"})
_PAUSE = "pause"
_SELECTED = 3
"""Number of arguments of ``select.select()`` without a timeout."""
_SHUTTING_DOWN = frozenset({"shutdown"})
"""The method of a ``socketserver`` server by which another thread ends ``serve_forever()``."""
_FROM_OUTSIDE = frozenset({_PAUSE, "sigwait", "sigwaitinfo", "input", "stdin"})


class ProgressAnalysis:
    """Analyses the progress of the threads and tasks of one look."""

    def __init__(
        self,
        places: Places,
        waiting: Container[PartyName],
        budget: Budget,
        open_calls: Iterable[Any] = (),
        wakers: Iterable[tuple[Progress, Callback]] = (),
    ) -> None:
        """``waiting``: the parties with a recorded wait; ``open_calls``: gRPC's own objects of the open calls.

        ``wakers``: further callbacks that may wake a party, each with the progress it depends on.
        """
        self._wakers = tuple(wakers)
        self._places = places
        self._waiting = waiting
        self._budget = budget
        self._cache: dict[object, Progress] = {}
        self._in_progress: dict[object, int] = {}
        self._lowest = 0
        self._provisional: list[object] = []
        self._code = CodeToRun(places, open_calls, self)
        self._timers: dict[asyncio.AbstractEventLoop, dict[int, float] | None] = {}

    def forget(self) -> None:
        """After the look: drop what was read of the process."""
        self._code.forget()

    def of_thread(self, ident: int | None) -> Progress:
        """Whether this thread makes progress."""
        place = self._places.threads.get(ident or 0)
        if place is None:
            return NEVER  # it has ended or not begun
        return self._cached(place.ident, lambda: self._of_thread(place))

    def of_task(self, task: Task) -> Progress:
        """Whether this task makes progress."""
        return self._cached(task, lambda: self._of_task(task))

    def end_of(self, task: Task) -> Progress:
        """Whether ``run_until_complete(task)`` returns: when the task ends or its loop is stopped."""
        at_once, after = returns(frames_of_task(task))
        stopped = self.stopped_by_own_stop(task.get_loop())
        if at_once:
            return self.of_task(task) | stopped
        return self.of_task(task) & self.after(after) | stopped if after else stopped

    def of_loop(self, loop: asyncio.AbstractEventLoop) -> Progress:
        """Whether callbacks scheduled on a loop run."""
        holder, _ = self._places.blocked_loops.get(loop, (None, None))
        return BY_ITSELF if holder is None else Progress(parties=frozenset((holder,)))

    def of_failure(self, hook: Hook) -> Progress:
        """Whether a thread, task or callback whose failure calls the hook makes progress."""
        due = self.of_loop(hook.loop) if hook.loop is not None and hook.callbacks else NEVER
        return due | any_of(map(self.of_thread, hook.threads)) | any_of(map(self.of_task, hook.tasks))

    def _cached(self, key: object, find: Callable[[], Progress]) -> Progress:
        """Return ``find()``, cached by key. A key requested while it is being computed waits for itself: ``NEVER``.

        Results that relied on such a ``NEVER`` are dropped once that key is computed, and computed again on demand.
        """
        if key in self._cache:
            return self._cache[key]
        if key in self._in_progress:
            self._lowest = min(self._lowest, self._in_progress[key])
            return NEVER
        depth, outer, begun = len(self._in_progress), self._lowest, len(self._provisional)
        self._in_progress[key], self._lowest = depth, depth
        found = self._cache[key] = find()
        del self._in_progress[key]
        if self._lowest < depth and not found.by_itself:
            self._provisional.append(key)
        elif self._lowest >= depth:
            for one in self._provisional[begun:]:
                self._cache.pop(one, None)
            del self._provisional[begun:]
        self._lowest = min(outer, self._lowest)
        return found

    # -- threads -------------------------------------------------------------------------------------------------------

    def _of_thread(self, place: Place) -> Progress:
        party = place.party if place.party is not None and place.party in self._waiting else caller_at(place.frames)
        if party is not None:
            joined = compat.joined_at(place.frames[0]) if place.frames else ()
            ended = all(self.of_thread(one.ident) for one in joined)
            return Progress(parties=frozenset((party,))) if ended else NEVER
        inner = list(_until_application(place.frames))
        if not inner:
            loop = compat.loop_in(place.frames[0]) if place.frames else None
            if loop is not None:  # a loop without its own frames
                return self._of_call(place.frames[0]) or NEVER
            return NEVER if place.frames and _waits_for_outside(place.frames[0]) else BY_ITSELF
        for frame in reversed(inner):  # the function that the application called shows the purpose of the wait
            found = self._of_call(frame)
            if found is not None:
                return found
        return self._of_wait(inner, place.ident)

    def _of_call(self, frame: FrameType) -> Progress | None:
        """The progress shown by a library frame below the application's; None if it shows nothing."""
        code = frame.f_code
        if compat.is_grpc(code.co_filename):
            return self._of_service(frame) if is_endless_service(frame) else BY_ITSELF
        if code.co_name == "serve_forever":
            return self._of_service(frame)
        task: Any = compat.main_task_in(frame)
        if compat.is_task(task):
            return self.end_of(task)
        if compat.is_loop_code(code) and code.co_name == "run_until_complete":
            return BY_ITSELF
        loop = compat.loop_in(frame)
        return None if loop is None else self.stopped(loop)

    def _of_service(self, frame: FrameType) -> Progress:
        """The progress of a party that serves until somebody stops its server."""
        server = variables_of(frame).get("self")
        if compat.is_grpc(frame.f_code.co_filename):
            return self.stopped_by_own_stop(server)
        if server is None:
            return NEVER
        return BY_ITSELF if _acts_in_its_loop(server) else self._woken(server, waking=_SHUTTING_DOWN)

    def _of_wait(self, inner: list[FrameType], own: int | None) -> Progress:
        """The progress of the wait that the library frames ``inner`` of the thread ``own`` are in (rule 2)."""
        if not compat.is_endless_wait(inner[0]) or any(frame.f_code is compat.THREAD_START for frame in inner):
            return BY_ITSELF
        what: Any
        every: list[Any] = [variables_of(frame).get("self") for frame in reversed(inner)]
        awaited = [one for one in every if not (issubclass(type(one), threading.Thread) and one.ident == own)]
        if len(awaited) < len(every) and None in awaited:
            return NEVER  # an executor's thread without an item
        for what in awaited:
            if issubclass(type(what), threading.Thread):
                return self.of_thread(what.ident)
            if issubclass(type(what), Future):
                return self._of_future(what)
        return BY_ITSELF if None in awaited else self._woken(*awaited)

    def _of_future(self, future: Any) -> Progress:
        source = compat.source_of(future)
        if compat.is_task(source):
            return self.of_task(source)
        workers = (place for place in self._places.threads.values() if compat.running_item(list(place.frames)) is future)
        worker = next(workers, None)
        return BY_ITSELF if worker is None else self.of_thread(worker.ident)

    # -- tasks ---------------------------------------------------------------------------------------------------------

    def _of_task(self, task: Task) -> Progress:
        party = self._places.party_of(task)
        loop = self.of_loop(task.get_loop())
        held_up = not loop.by_itself and asyncio.current_task(task.get_loop()) is not task
        if held_up and not self._of_await_or_cancellation(task):
            return NEVER
        if party is not None and party in self._waiting:
            return Progress(parties=frozenset((party,)))
        callers = self._callers_behind(task)
        if callers:
            return Progress(parties=callers)
        return loop if held_up else self._of_await_or_cancellation(task)

    def _callers_behind(self, task: Task) -> frozenset[PartyName]:
        """The parties whose call a task awaits for them as its interceptors; they are in recorded waits for it."""
        parties = [self._places.party_of(one) for one in awaiters(task)] if awaits_call(task) else []
        return frozenset(one for one in parties if one is not None and one in self._waiting)

    def _of_await_or_cancellation(self, task: Task) -> Progress:
        """Whether a task makes progress once its loop runs."""
        future = blocking_future(task)
        if future is None or self._is_timed(task):
            return BY_ITSELF
        found = self._of_waiting(task, future)
        return found if found.by_itself else found | self._cancelled(task)

    def _cancelled(self, task: Task) -> Progress:
        """The progress of the actors that may cancel a task (rule 6)."""
        above = awaiters(task)
        if self._places.of_task(task, self._places.party_of(task)).serves is not None or any(map(self._is_timed, above)):
            return BY_ITSELF
        siblings = siblings_of(task, self._places.coroutine_of(task))
        found = any_of(map(self.of_task, siblings)) | any_of(map(self._cancelled_from_above, above))
        return found if found.by_itself else found | self._woken(task, waking=_CANCELLING)

    def _cancelled_from_above(self, task: Task) -> Progress:
        return self._cached((task, "cancelled"), lambda: self._cancelled(task))

    def _of_waiting(self, task: Task, future: Any) -> Progress:
        awaited = read(task, future, self._places.coroutine_of(task))
        if awaited is not None:
            if awaited.until is not None or not all(map(compat.is_task, awaited.futures)):
                return BY_ITSELF
            found = [self.of_task(one) for one in awaited.futures]
            return NEVER if awaited.needs_all and not all(found) else any_of(found)
        source = compat.source_of(future)
        if source is not None:
            return self._of_future(source)
        return self._of_await(task, future)

    def _is_timed(self, task: Task) -> bool:
        """Whether a timer of its loop refers to the task."""
        loop = task.get_loop()
        if loop not in self._timers:
            self._timers[loop] = timers(loop)
        known = self._timers[loop]
        return known is None or id(task) in known

    def _of_await(self, task: Task, future: Any) -> Progress:
        """The progress of a task's wait for something other than a task."""
        frames = frames_of_task(task)
        outer = [frame for frame in frames if not is_application(frame.f_code)]
        service = next((one for one in outer if is_endless_service(one) or one.f_code.co_name == "serve_forever"), None)
        if service is not None:
            return self._of_service(service) if is_endless_service(service) else NEVER
        if compat.sleeps_until_stopped(frames):
            return NEVER
        if any(compat.is_grpc(frame.f_code.co_filename) for frame in outer):
            return BY_ITSELF
        code = frames[0].f_code if frames else None
        if code is not None and is_application(code):
            return self._woken(future)
        inner = list(takewhile(lambda frame: frame.f_code.co_filename in compat.ASYNCIO_WAITS, frames))
        return self._woken(*(variables_of(frame).get("self") for frame in inner)) if inner else BY_ITSELF

    # -- waking (rule 2) and changed flags (rule 5) --------------------------------------------------------------------

    def beyond(self, stretch: Stretch, progress: Progress) -> Progress:
        """Whether a party with this ``progress`` reaches ``stretch``."""
        if not progress or not stretch.after:
            return progress
        return progress & any_of(self._changed(condition, frame) for condition, frame in stretch.after)

    def after(self, conditions: Iterable[tuple[Condition, FrameType]]) -> Progress:
        """Whether one of the conditions, each read in its frame, changes."""
        return any_of(self._changed(condition, frame) for condition, frame in conditions)

    def _changed(self, condition: Condition, frame: FrameType) -> Progress:
        key = (condition, frame.f_code, id(frame))

        def find() -> Progress:
            flags = flags_of(condition, variables_of(frame), frame.f_globals, frame.f_code.co_filename)
            return any_of(map(self._of_flag, flags))

        return self._cached(key, find)

    def _of_flag(self, flag: Flag) -> Progress:
        match flag.kind:
            case Kind.BY_ITSELF:
                return BY_ITSELF
            case Kind.NEVER:
                return NEVER
            case Kind.WOKEN:
                return self._woken(flag.thing)
            case Kind.STORED:
                return self._flag_set(flag)
            case Kind.ENDS:
                return self._ended(flag.thing)

    def _ended(self, what: Any) -> Progress:
        if issubclass(type(what), threading.Thread):
            return self.of_thread(what.ident)
        return self.of_task(what) if compat.is_task(what) else self._of_future(what)

    def stopped(self, loop: Any) -> Progress:
        """Whether an actor that makes progress can reach the loop and mentions stopping it."""
        return NEVER if loop is None else self._woken(loop, waking=_STOPPING)

    def stopped_by_own_stop(self, loop: Any) -> Progress:
        """Whether an actor that makes progress calls the loop's own ``stop``."""
        return NEVER if loop is None else self._cached((loop, "stopped"), lambda: self._stopped_by_own_stop(loop))

    def _stopped_by_own_stop(self, loop: Any) -> Progress:
        found = any_of(progress() for progress in self._code.stopping(loop, Reach((loop,), self._budget)))
        return BY_ITSELF if self._budget.spent else found

    def _woken(self, *what: Any, waking: frozenset[str] | None = None) -> Progress:
        """Progress by actors that can reach one of ``what`` and mention ``waking`` it (set, feed, release)."""
        reach = WakersReach(what, self._budget)
        far = waking_names_far_away(what) if waking is None else frozenset[str]()
        waking = waking_names(what) if waking is None else waking
        found = NEVER
        for progress, stretch in self._code.stretches:
            if self._budget.spent or found.by_itself:
                break
            if may_wake(stretch, waking, far) and reach.found_from(stretch.frame):
                found |= self.beyond(stretch, progress())
        unnamed = (*self._code.of_libraries, *self._code.of_dropped)
        of_libraries = (one for one in unnamed if callback_may_wake(one[1][0], waking))
        for progress, (callback, rest) in chain(self._code.callbacks, of_libraries):
            if self._budget.spent or found.by_itself:
                break
            if reach.found_by(callback, rest):
                found |= progress()
        for known, (callback, rest) in self._wakers if not found.by_itself else ():
            if reach.found_by(callback, rest):
                found |= known
        return BY_ITSELF if self._budget.spent else found

    def _flag_set(self, flag: Flag) -> Progress:
        """Progress by actors that may set one of a flag's names and, for an attribute or item, can reach its object."""
        reach = None if flag.thing is None else WakersReach((flag.thing,), self._budget)
        found = NEVER
        for progress, stretch in self._code.stretches:
            if found.by_itself or not self._budget.step():
                break
            if self._code.may_set(stretch, flag) and (reach is None or reach.found_from(stretch.frame)):
                found |= self.beyond(stretch, progress())
        for progress, callback in chain(self._code.callbacks, self._code.of_libraries, self._code.of_dropped):
            if found.by_itself or not self._budget.step():
                break
            called, rest = callback
            if self._code.may_set(callback, flag) and (
                reach is None or reach.found_by(called, (*compat.bound_to(called), *rest))
            ):
                found |= progress()
        return BY_ITSELF if self._budget.spent else found


def _until_application(frames: Iterable[FrameType]) -> Iterator[FrameType]:
    for frame in frames:
        if is_application(frame.f_code):
            return
        yield frame


def _waits_for_outside(frame: FrameType) -> bool:
    """Whether the application waits for a signal, of which none is to come, or for standard input."""
    names = names_at(frame.f_code, frame.f_lasti)
    timed = "select" in names and arguments_at(frame.f_code, frame.f_lasti) > _SELECTED  # ``select([stdin], [], [], 1)``
    return not (_FROM_OUTSIDE.isdisjoint(names) or timed or (_PAUSE in names and any(signal_callbacks(()))))


def _acts_in_its_loop(server: Any) -> bool:
    """Whether a ``socketserver`` server runs code of the application's own in each round of its loop."""
    method = inherited(type(server), "service_actions")
    return type(method) is FunctionType and is_application(method.__code__)


def is_endless_service(frame: FrameType) -> bool:
    """Whether this frame is gRPC's ``Server.wait_for_termination()`` without a timeout, of a server that is not stopped."""
    names = variables_of(frame)
    if frame.f_code.co_name != "wait_for_termination" or names.get("timeout", 0) is not None:
        return False
    return not compat.is_stopping_server(names.get("self"))
