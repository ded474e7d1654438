"""Who goes on by itself, and who waits for ever: as far as the frames of a thread or the awaits of a task show it.

Rules:

1. A party with a recorded wait goes on when its wait ends: the detector knows about that.
2. Who waits with no time-out for a thread, a task or a future goes on when that ends; who waits for an event, a condition or a
   queue, when somebody else who goes on has it and speaks of setting, feeding or giving it back.
3. ``wait_for_termination()``, a wait for signals and the reading of standard input end from outside alone: by an operator, or
   by who stops the server, who is found by himself.
4. Everybody else goes on: who runs, who sleeps, who waits with a time-out, and whoever's wait is of an unknown kind.
"""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Callable, Container, Iterable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from types import FrameType
from typing import Any

from stilltrue.model import PartyName
from stilltrue.runtime import compat
from stilltrue.runtime.frames import frame_of, variables_of
from stilltrue.runtime.look.ahead import ahead_of, names_at
from stilltrue.runtime.look.budget import Budget
from stilltrue.runtime.look.reach import Reach, codes_named
from stilltrue.runtime.places import Place, Places, is_application
from stilltrue.runtime.tasks import Task, blocking_future, read, timers

_WAKING = frozenset(
    {"set", "notify", "notify_all", "put", "put_nowait", "release", "set_result", "set_exception", "cancel", "close"}
    | {"aclose", "stop", "shutdown", "abort", "call_soon_threadsafe"}
)
_FROM_OUTSIDE = frozenset({"pause", "sigwait", "sigwaitinfo", "input", "stdin"})


@dataclass(frozen=True, slots=True)
class Goes:
    """Whether somebody goes on: ``by_itself``, or when one of ``parties`` does, or else never."""

    by_itself: bool = False
    parties: frozenset[PartyName] = frozenset()

    def __or__(self, other: Goes) -> Goes:
        return Goes(self.by_itself or other.by_itself, self.parties | other.parties)

    def __bool__(self) -> bool:
        return self.by_itself or bool(self.parties)


NEVER = Goes()
BY_ITSELF = Goes(by_itself=True)


class Standing:
    """Who goes on, of the threads and tasks of one look."""

    def __init__(self, places: Places, waiting: Container[PartyName], budget: Budget) -> None:
        """``waiting`` are the parties with a recorded wait."""
        self._places = places
        self._waiting = waiting
        self._budget = budget
        self._known: dict[object, Goes] = {}
        self._timers: dict[asyncio.AbstractEventLoop, dict[int, float] | None] = {}

    def of_thread(self, ident: int | None) -> Goes:
        """Whether this thread goes on."""
        place = self._places.threads.get(ident or 0)
        if place is None:
            return NEVER  # it is over, or has not begun
        return self._once(place.ident, lambda: self._of_thread(place))

    def of_task(self, task: Task) -> Goes:
        """Whether this task goes on."""
        return self._once(task, lambda: self._of_task(task))

    def _once(self, key: object, find: Any) -> Goes:
        if key not in self._known:
            self._known[key] = NEVER  # who is asked about meanwhile waits for this very one
            self._known[key] = find()
        return self._known[key]

    # -- threads -------------------------------------------------------------------------------------------------------

    def _of_thread(self, place: Place) -> Goes:
        if place.party is not None and place.party in self._waiting:
            return Goes(parties=frozenset((place.party,)))
        inner = list(_until_application(place.frames))
        if not inner:
            return NEVER if place.frames and _is_for_outside(place.frames[0]) else BY_ITSELF
        for frame in reversed(inner):  # what the application has called says what it is about
            found = self._of_call(frame)
            if found is not None:
                return found
        return self._of_wait(inner)

    def _of_call(self, frame: FrameType) -> Goes | None:
        """What a frame between the application's and the innermost says; None: nothing."""
        code = frame.f_code
        if compat.is_grpc(code.co_filename):
            return NEVER if _is_endless_service(frame) else BY_ITSELF
        if code.co_name == "serve_forever":
            return NEVER
        if compat.is_loop_code(code) and code.co_name == "run_until_complete":
            task: Any = variables_of(frame).get("future")
            return self.of_task(task) if compat.is_task(task) else BY_ITSELF
        return NEVER if compat.is_loop_code(code) and code.co_name == "run_forever" else None

    def _of_wait(self, inner: list[FrameType]) -> Goes:
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

    def _of_future(self, future: Any) -> Goes:
        source = compat.source_of(future)
        if compat.is_task(source):
            return self.of_task(source)
        workers = (place for place in self._places.threads.values() if compat.item_run_by(list(place.frames)) is future)
        worker = next(workers, None)
        return BY_ITSELF if worker is None else self.of_thread(worker.ident)

    # -- tasks ---------------------------------------------------------------------------------------------------------

    def _of_task(self, task: Task) -> Goes:
        party = self._places.party_of(task)
        if party is not None and party in self._waiting:
            return Goes(parties=frozenset((party,)))
        future = blocking_future(task)
        if future is None or self._is_timed(task):
            return BY_ITSELF
        awaited = read(task, future, self._places.coroutine_of(task))
        if awaited is not None:
            if awaited.until is not None or not all(map(compat.is_task, awaited.futures)):
                return BY_ITSELF
            found = [self.of_task(one) for one in awaited.futures]
            return NEVER if awaited.needs_all and not all(found) else _any(found)
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

    def _of_await(self, task: Task, future: Any) -> Goes:
        """Who ends the wait of a task for what is no task."""
        frames = frames_of_task(task)
        outer = [frame for frame in frames if not is_application(frame.f_code)]
        if any(_is_endless_service(frame) or frame.f_code.co_name == "serve_forever" for frame in outer):
            return NEVER
        if any(compat.is_grpc(frame.f_code.co_filename) for frame in outer):
            return BY_ITSELF
        code = frames[0].f_code if frames else None
        if code is not None and is_application(code):
            return self._woken(future)
        known = code is not None and code.co_filename in compat.ASYNCIO_WAITS
        return self._woken(variables_of(frames[0]).get("self")) if known else BY_ITSELF

    # -- who wakes (rule 2) --------------------------------------------------------------------------------------------

    def _woken(self, *what: Any) -> Goes:
        """Who has one of ``what``, and may set, feed or give it back."""
        reach = Reach(what, self._budget)
        found = NEVER
        for goes, roots in self._wakers():
            if self._budget.spent or found.by_itself:
                break
            if reach.held(roots, ends=True):
                found |= goes()
        return BY_ITSELF if self._budget.spent else found

    def _wakers(self) -> Iterator[tuple[Callable[[], Goes], tuple[Any, ...]]]:
        """Who speaks of waking: whether he goes on, and what he has."""
        threads = compat.threads()
        for place in self._places.threads.values():
            if place.ident != threading.get_ident():
                goes = functools.partial(self.of_thread, place.ident)
                yield from ((goes, roots) for roots in _waking(place.frames))
            thread = threads.get(place.ident)
            if isinstance(thread, threading.Timer):
                yield _at_once, compat.carried_by(thread)
        for loop in self._places.loop_threads.values():
            called = map(compat.called_by, compat.handles_of(loop) or ())
            yield from ((_at_once, (callback, *rest)) for callback, rest in called if not compat.is_asyncio(callback))
            for task in compat.tasks_of(loop) or ():
                yield from ((functools.partial(self.of_task, task), roots) for roots in _waking(frames_of_task(task)))


def frames_of_task(task: Task) -> list[FrameType]:
    """Where a task stands, innermost first."""
    return [frame for one in reversed(compat.chain_of(task.get_coro())) if (frame := frame_of(one)) is not None]


def _at_once() -> Goes:
    return BY_ITSELF


def _waking(frames: Iterable[FrameType]) -> Iterator[tuple[Any, ...]]:
    """What those of the frames have that speak of waking."""
    returns = True
    for frame in frames:
        if is_application(frame.f_code):
            names = variables_of(frame)
            if _speaks(frame, names, returns):
                yield roots_of(frame, names)
            returns = ahead_of(frame.f_code, frame.f_lasti, returns_to=returns).returns


def roots_of(frame: FrameType, names: dict[str, Any]) -> tuple[Any, ...]:
    """What a frame has: its variables, and the globals that its code names."""
    return (*names.values(), *(frame.f_globals[name] for name in frame.f_code.co_names if name in frame.f_globals))


def _speaks(frame: FrameType, names: dict[str, Any], returns_to: bool) -> bool:
    ahead = ahead_of(frame.f_code, frame.f_lasti, returns_to=returns_to)
    if not ahead.known or not _WAKING.isdisjoint(ahead.names):
        return True
    return any(not _WAKING.isdisjoint(code.co_names) for code in codes_named(ahead.names, frame.f_globals, names.values()))


def _until_application(frames: Iterable[FrameType]) -> Iterator[FrameType]:
    for frame in frames:
        if is_application(frame.f_code):
            return
        yield frame


def _is_for_outside(frame: FrameType) -> bool:
    """Whether the application waits for a signal, or reads what somebody types or pipes in."""
    return not _FROM_OUTSIDE.isdisjoint(names_at(frame.f_code, frame.f_lasti))


def _is_endless_service(frame: FrameType) -> bool:
    """Whether gRPC's frame is that of ``Server.wait_for_termination()`` without a time-out."""
    return frame.f_code.co_name == "wait_for_termination" and variables_of(frame).get("timeout", 0) is None


def _any(found: Iterable[Goes]) -> Goes:
    together = NEVER
    for one in found:
        together |= one
    return together
