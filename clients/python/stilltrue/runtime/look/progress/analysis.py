"""Who goes on by itself, and who waits for ever: as far as the frames of a thread or the awaits of a task show it.

Rules:

1. A party with a recorded wait goes on when its wait ends: the detector knows about that.
2. Who waits with no time-out for a thread, a task or a future goes on when that ends; who waits for an event, a condition or a
   queue, when somebody else who goes on has it and speaks of setting, feeding or giving it back.
3. A loop that runs for ever returns when somebody who goes on has it and speaks of stopping it; one that runs until a task has
   ended, when that calls the loop's own ``stop``.
   ``wait_for_termination()``, a wait for signals, the sleep of aiohttp's ``run_app()`` and the reading of standard input end
   from outside alone: by an operator, or by who stops the server, who is found by himself.
4. All others go on: those that run, sleep, wait with a time-out, or wait in an unknown way.
5. Who polls a flag in a loop goes on with the loop; beyond it only if somebody who goes on changes the flag.
6. A task goes on when it is cancelled: by a timer of its loop, when a sibling in its task group fails, with who awaits it, by
   who goes on and has it and speaks of cancelling it; and, if it serves a call, by its caller.
"""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Callable, Container, Iterable, Iterator
from concurrent.futures import Future
from types import FrameType
from typing import Any

from stilltrue.model import PartyName
from stilltrue.runtime import compat
from stilltrue.runtime.introspection.frames import variables_of
from stilltrue.runtime.introspection.origins import is_application
from stilltrue.runtime.introspection.places import Place, Places
from stilltrue.runtime.introspection.tasks import Task, awaiters, blocking_future, read, siblings_of, timers
from stilltrue.runtime.look.budget import Budget
from stilltrue.runtime.look.code.ahead import names_at
from stilltrue.runtime.look.code.conditions import Condition
from stilltrue.runtime.look.enders.kinds.failing import Hook, hooks_of_failure
from stilltrue.runtime.look.enders.kinds.stoppers import callback_stops, stops
from stilltrue.runtime.look.enders.kinds.wakers import (
    Callback,
    callback_sets,
    of_alarm,
    of_beginning,
    of_calls,
    of_sockets,
    roots_of,
    sets,
    speaks,
    waking_names,
)
from stilltrue.runtime.look.enders.reach import Reach
from stilltrue.runtime.look.progress.flags import Flag, Kind, flags_of
from stilltrue.runtime.look.progress.progress import BY_ITSELF, NEVER, Progress, any_of
from stilltrue.runtime.look.progress.stretches import Stretch, frames_of_task, returns, stretches
from stilltrue.runtime.transport.holders import caller_at

_STOPPING = frozenset({"stop"})
_CANCELLING = frozenset({"cancel", "throw", "cancel_scope", "all_tasks"})
_FROM_OUTSIDE = frozenset({"pause", "sigwait", "sigwaitinfo", "input", "stdin"})


class ProgressAnalysis:
    """Who goes on, of the threads and tasks of one look."""

    def __init__(self, places: Places, waiting: Container[PartyName], budget: Budget, made: Iterable[Any] = ()) -> None:
        """``waiting`` are the parties with a recorded wait; ``made`` gRPC's own objects of the calls that are open."""
        self._made = tuple(made)
        self._places = places
        self._waiting = waiting
        self._budget = budget
        self._known: dict[object, Progress] = {}
        self._open: dict[object, int] = {}
        self._leans = 0
        self._leaning: list[object] = []
        self._timers: dict[asyncio.AbstractEventLoop, dict[int, float] | None] = {}

    def of_thread(self, ident: int | None) -> Progress:
        """Whether this thread goes on."""
        place = self._places.threads.get(ident or 0)
        if place is None:
            return NEVER  # it is over, or has not begun
        return self._once(place.ident, lambda: self._of_thread(place))

    def of_task(self, task: Task) -> Progress:
        """Whether this task goes on."""
        return self._once(task, lambda: self._of_task(task))

    def end_of(self, task: Task) -> Progress:
        """Whether ``run_until_complete(task)`` returns: when the task does, or when its loop is stopped."""
        at_once, after = returns(frames_of_task(task))
        stopped = self.stopped_by_its_stop(task.get_loop())
        if at_once:
            return self.of_task(task) | stopped
        return self.of_task(task) & self.after(after) | stopped if after else stopped

    def of_loop(self, loop: asyncio.AbstractEventLoop) -> Progress:
        """Whether what is scheduled on a loop gets its turn."""
        holder, _ = self._places.blocked_loops.get(loop, (None, None))
        return BY_ITSELF if holder is None else Progress(parties=frozenset((holder,)))

    def of_failure(self, hook: Hook) -> Progress:
        """Whether somebody goes on by whose failure a hook is called."""
        due = self.of_loop(hook.loop) if hook.loop is not None and hook.callbacks else NEVER
        return due | any_of(map(self.of_thread, hook.threads)) | any_of(map(self.of_task, hook.tasks))

    def _once(self, key: object, find: Callable[[], Progress]) -> Progress:
        """What ``find`` says, remembered. A key that is asked about while it is being answered waits for itself: ``NEVER``.

        Answers that relied on that are forgotten once the key itself is answered, and found again then.
        """
        if key in self._known:
            return self._known[key]
        if key in self._open:
            self._leans = min(self._leans, self._open[key])
            return NEVER
        depth, outer, begun = len(self._open), self._leans, len(self._leaning)
        self._open[key], self._leans = depth, depth
        found = self._known[key] = find()
        del self._open[key]
        if self._leans < depth and not found.by_itself:
            self._leaning.append(key)
        elif self._leans >= depth:
            for one in self._leaning[begun:]:
                self._known.pop(one, None)
            del self._leaning[begun:]
        self._leans = min(outer, self._leans)
        return found

    # -- threads -------------------------------------------------------------------------------------------------------

    def _of_thread(self, place: Place) -> Progress:
        party = place.party if place.party is not None and place.party in self._waiting else caller_at(place.frames)
        if party is not None:
            joined = compat.joined_at(place.frames[0]) if place.frames else None
            return NEVER if joined is not None and not self.of_thread(joined.ident) else Progress(parties=frozenset((party,)))
        inner = list(_until_application(place.frames))
        if not inner:
            loop = compat.loop_in(place.frames[0]) if place.frames else None
            if loop is not None:  # it runs one without frames of its own
                return self._of_call(place.frames[0]) or NEVER
            return NEVER if place.frames and _is_for_outside(place.frames[0]) else BY_ITSELF
        for frame in reversed(inner):  # what the application has called says what it is about
            found = self._of_call(frame)
            if found is not None:
                return found
        return self._of_wait(inner)

    def _of_call(self, frame: FrameType) -> Progress | None:
        """What a frame between the application's and the innermost says; None: nothing."""
        code = frame.f_code
        if compat.is_grpc(code.co_filename):
            return NEVER if _is_endless_service(frame) else BY_ITSELF
        if code.co_name == "serve_forever":
            return NEVER
        task: Any = compat.main_task_in(frame)
        if compat.is_task(task):
            return self.end_of(task)
        if compat.is_loop_code(code) and code.co_name == "run_until_complete":
            return BY_ITSELF
        loop = compat.loop_in(frame)
        return None if loop is None else self.stopped(loop)

    def _of_wait(self, inner: list[FrameType]) -> Progress:
        """Who ends the wait that the library's frames ``inner`` are in (rule 2)."""
        if not compat.is_endless_wait(inner[0]) or any(frame.f_code is compat.THREAD_START for frame in inner):
            return BY_ITSELF
        awaited = [variables_of(frame).get("self") for frame in reversed(inner)]
        what: Any
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
        workers = (place for place in self._places.threads.values() if compat.item_run_by(list(place.frames)) is future)
        worker = next(workers, None)
        return BY_ITSELF if worker is None else self.of_thread(worker.ident)

    # -- tasks ---------------------------------------------------------------------------------------------------------

    def _of_task(self, task: Task) -> Progress:
        party = self._places.party_of(task)
        if party is not None and party in self._waiting:
            return Progress(parties=frozenset((party,)))
        loop = self.of_loop(task.get_loop())
        future = blocking_future(task)
        if not loop.by_itself and asyncio.current_task(task.get_loop()) is not task:
            return loop
        if future is None or self._is_timed(task):
            return BY_ITSELF
        found = self._of_waiting(task, future)
        return found if found.by_itself else found | self._cancelled(task)

    def _cancelled(self, task: Task) -> Progress:
        """Who may cancel a task (rule 6)."""
        above = awaiters(task)
        if self._places.of_task(task, self._places.party_of(task)).serves is not None or any(map(self._is_timed, above)):
            return BY_ITSELF
        found = any_of(map(self.of_task, siblings_of(task))) | any_of(map(self._ended_from_above, above))
        return found if found.by_itself else found | self._woken(task, waking=_CANCELLING)

    def _ended_from_above(self, task: Task) -> Progress:
        return self._once((task, "cancelled"), lambda: self._cancelled(task))

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
        """Whether a timer of its loop knows the task."""
        loop = task.get_loop()
        if loop not in self._timers:
            self._timers[loop] = timers(loop)
        known = self._timers[loop]
        return known is None or id(task) in known

    def _of_await(self, task: Task, future: Any) -> Progress:
        """Who ends the wait of a task for what is no task."""
        frames = frames_of_task(task)
        outer = [frame for frame in frames if not is_application(frame.f_code)]
        if any(_is_endless_service(frame) or frame.f_code.co_name == "serve_forever" for frame in outer):
            return NEVER
        if compat.is_for_operator(frames):
            return NEVER
        if any(compat.is_grpc(frame.f_code.co_filename) for frame in outer):
            return BY_ITSELF
        code = frames[0].f_code if frames else None
        if code is not None and is_application(code):
            return self._woken(future)
        known = code is not None and code.co_filename in compat.ASYNCIO_WAITS
        return self._woken(variables_of(frames[0]).get("self")) if known else BY_ITSELF

    # -- who wakes (rule 2), and who changes a flag (rule 5) -----------------------------------------------------------

    def beyond(self, stretch: Stretch, progress: Progress) -> Progress:
        """Whether somebody with this ``progress`` comes to what is ahead in ``stretch``."""
        if not progress or not stretch.after:
            return progress
        return progress & any_of(self._changed(condition, frame) for condition, frame in stretch.after)

    def after(self, conditions: Iterable[tuple[Condition, FrameType]]) -> Progress:
        """Whether one of these changes, each read in its frame."""
        return any_of(self._changed(condition, frame) for condition, frame in conditions)

    def _changed(self, condition: Condition, frame: FrameType) -> Progress:
        key = (condition, frame.f_code, id(frame))

        def find() -> Progress:
            flags = flags_of(condition, variables_of(frame), frame.f_globals, frame.f_code.co_filename)
            return any_of(map(self._of_flag, flags))

        return self._once(key, find)

    def _of_flag(self, flag: Flag) -> Progress:
        match flag.kind:
            case Kind.BY_ITSELF:
                return BY_ITSELF
            case Kind.NEVER:
                return NEVER
            case Kind.WOKEN:
                return self._woken(flag.thing)
            case Kind.STORED:
                return self._set(flag)
            case Kind.ENDS:
                return self._ended(flag.thing)

    def _ended(self, what: Any) -> Progress:
        if issubclass(type(what), threading.Thread):
            return self.of_thread(what.ident)
        return self.of_task(what) if compat.is_task(what) else self._of_future(what)

    def stopped(self, loop: Any) -> Progress:
        """Whether somebody who goes on has a loop, and speaks of stopping it."""
        return NEVER if loop is None else self._woken(loop, waking=_STOPPING)

    def stopped_by_its_stop(self, loop: Any) -> Progress:
        """Whether somebody who goes on calls the loop's own ``stop``."""
        return NEVER if loop is None else self._once((loop, "stopped"), lambda: self._stopped_by_its_stop(loop))

    def _stopped_by_its_stop(self, loop: Any) -> Progress:
        reach = Reach((loop,), self._budget)
        found = any_of(self.beyond(one, progress()) for progress, one in self._actors() if stops(one, loop, reach))
        found |= any_of(progress() for progress, callback in self._callbacks() if callback_stops(callback, loop, reach))
        return BY_ITSELF if self._budget.spent else found

    def _woken(self, *what: Any, waking: frozenset[str] | None = None) -> Progress:
        """Who has one of ``what``, and may set, feed or give it back: speaks of ``waking``."""
        reach = Reach(what, self._budget)
        waking = waking_names(what) if waking is None else waking
        found = NEVER
        for progress, stretch in self._actors():
            if self._budget.spent or found.by_itself:
                break
            held = roots_of(stretch.frame, variables_of(stretch.frame))
            if speaks(stretch, waking) and reach.held(held, ends=True):
                found |= self.beyond(stretch, progress())
        for progress, (callback, rest) in self._callbacks():
            if self._budget.spent or found.by_itself:
                break
            if reach.held((callback, *rest), ends=True):
                found |= progress()
        return BY_ITSELF if self._budget.spent else found

    def _set(self, flag: Flag) -> Progress:
        """The parties that may set one of a flag's names; for an attribute or item, in the objects they hold."""
        reach = None if flag.thing is None else Reach((flag.thing,), self._budget)
        found = NEVER
        for progress, stretch in self._actors():
            if found.by_itself or not self._budget.step():
                break
            held = roots_of(stretch.frame, variables_of(stretch.frame))
            if sets(stretch, flag) and (reach is None or reach.held(held, ends=True)):
                found |= self.beyond(stretch, progress())
        for progress, callback in self._callbacks():
            if found.by_itself or not self._budget.step():
                break
            if callback_sets(callback, flag) and (reach is None or reach.held((callback[0], *callback[1]), ends=True)):
                found |= progress()
        return BY_ITSELF if self._budget.spent else found

    def _actors(self) -> Iterator[tuple[Callable[[], Progress], Stretch]]:
        """Every thread and task: whether it goes on, and what is ahead of it."""
        for place in self._places.threads.values():
            if place.ident != threading.get_ident():
                progress = functools.partial(self.of_thread, place.ident)
                yield from ((progress, one) for one in stretches(place.frames))
        for loop in self._places.loop_threads.values():
            for task in compat.tasks_of(loop) or ():
                progress = functools.partial(self.of_task, task)
                yield from ((progress, one) for one in stretches(frames_of_task(task)))

    def _callbacks(self) -> Iterator[tuple[Callable[[], Progress], Callback]]:
        """What is called by timers, at the end of calls, tasks and executors' items, by failures and by an alarm."""
        threads = compat.threads()
        for place in self._places.threads.values():
            thread = threads.get(place.ident)
            if isinstance(thread, threading.Timer):
                carried = compat.carried_by(thread)
                yield from ((_at_once, (one, carried)) for one in carried[:1])
            elif thread is not None and not any(is_application(frame.f_code) for frame in place.frames):
                yield from ((_at_once, one) for one in of_beginning(thread))
            item = compat.item_run_by(list(place.frames))
            progress = functools.partial(self.of_thread, place.ident)
            yield from ((progress, (one, ())) for one in compat.callbacks_of_item(item))
        for loop in self._places.loop_threads.values():
            called = map(compat.called_by, compat.handles_of(loop) or ())
            progress = functools.partial(self.of_loop, loop)
            yield from ((progress, one) for one in called if not compat.is_asyncios_own(one[0]))
            yield from ((progress, one) for one in of_sockets(loop))
            for task in compat.tasks_of(loop) or ():
                progress = functools.partial(self.of_task, task)
                yield from ((progress, (one, ())) for one, _ in compat.callbacks_of(task) if not compat.is_asyncios_own(one))
        for hook in hooks_of_failure(self._places):
            yield functools.partial(self.of_failure, hook), (hook.callback, ())
        yield from ((_at_once, one) for one in (*of_alarm(), *of_calls(self._made, self._places.threads.values())))


def _at_once() -> Progress:
    return BY_ITSELF


def _until_application(frames: Iterable[FrameType]) -> Iterator[FrameType]:
    for frame in frames:
        if is_application(frame.f_code):
            return
        yield frame


def _is_for_outside(frame: FrameType) -> bool:
    """Whether the application waits for a signal, or reads what somebody types or pipes in."""
    return not _FROM_OUTSIDE.isdisjoint(names_at(frame.f_code, frame.f_lasti))


def _is_endless_service(frame: FrameType) -> bool:
    """Whether gRPC's frame is that of ``Server.wait_for_termination()`` without a time-out, of a server that is not stopped."""
    names = variables_of(frame)
    if frame.f_code.co_name != "wait_for_termination" or names.get("timeout", 0) is not None:
        return False
    return not compat.is_stopping_server(names.get("self"))
