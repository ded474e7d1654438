"""The code that threads, tasks and callbacks have yet to run, with their progress: read once for each look."""

from __future__ import annotations

import functools
import gc
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

from stilltrue.runtime import compat
from stilltrue.runtime.cached_attribute import CachedAttribute
from stilltrue.runtime.introspection.origins import is_application, is_application_callback, is_of_own_module
from stilltrue.runtime.introspection.tasks import Task
from stilltrue.runtime.introspection.threads_and_tasks import Places
from stilltrue.runtime.look.called_code.given_to_c import functions_given_to_c
from stilltrue.runtime.look.progress.flags import Flag
from stilltrue.runtime.look.progress.progress import BY_ITSELF, Progress
from stilltrue.runtime.look.progress.stack_ahead import Stretch, frames_of_task, own_frames_of, stretches
from stilltrue.runtime.look.ways_out.kinds.closing.finalization import called_when_dropped
from stilltrue.runtime.look.ways_out.kinds.failure_hooks import Hook, hooks_of_failure
from stilltrue.runtime.look.ways_out.kinds.loop_stoppers import callback_may_stop, may_stop
from stilltrue.runtime.look.ways_out.kinds.wakers import (
    Callback,
    Stored,
    call_callbacks,
    callbacks_of_library,
    callbacks_of_starting_thread,
    connectivity_callbacks,
    given_to_package,
    given_to_timer,
    may_set,
    signal_callbacks,
    socket_callbacks,
    stored_ahead,
    stored_by,
)
from stilltrue.runtime.look.ways_out.reach import Reach

When = Callable[[], Progress]
"""Returns whether code will run."""


class ProgressOf(Protocol):
    """Whether threads, tasks and callbacks make progress."""

    def of_thread(self, ident: int | None) -> Progress:
        """Of a thread."""

    def of_task(self, task: Task) -> Progress:
        """Of a task."""

    def of_loop(self, loop: Any) -> Progress:
        """Of the callbacks scheduled on a loop."""

    def of_failure(self, hook: Hook) -> Progress:
        """Of what may fail, so that a hook is called."""

    def beyond(self, stretch: Stretch, progress: Progress) -> Progress:
        """Of a party with this ``progress`` up to a stretch of its code."""


class CodeToRun:
    """The code ahead of all threads and tasks, and all callbacks."""

    def __init__(self, places: Places, open_calls: Iterable[Any], progress: ProgressOf) -> None:
        """``open_calls``: gRPC's own objects of the open calls."""
        self._places = places
        self._open_calls = tuple(open_calls)
        self._progress = progress
        self._stored: dict[int, Stored] = {}
        """By the identity of a stretch or callback, which the lists below keep: what it may set."""
        self._stopping: dict[int, list[When]] = {}
        """By the identity of a loop: who may stop it."""

    @CachedAttribute
    def stretches(self) -> list[tuple[When, Stretch]]:
        """Every stretch of code ahead of a thread or task, with the progress of that thread or task."""
        return list(self._all_stretches())

    @CachedAttribute
    def callbacks(self) -> list[tuple[When, Callback]]:
        """Callbacks of timers, sockets, calls, channels, tasks, executor items, failures and signals."""
        return list(_all_callbacks(self._places, self._open_calls, self._progress))

    @CachedAttribute
    def of_libraries(self) -> list[tuple[When, Callback]]:
        """What libraries will call in threads: the jobs of a scheduler, for example."""
        threads = [place for place in self._places.threads.values() if place.ident != threading.get_ident()]
        of_thread = self._progress.of_thread
        return [
            (functools.partial(of_thread, place.ident), one) for place in threads for one in callbacks_of_library(place.frames)
        ]

    @CachedAttribute
    def of_dropped(self) -> list[tuple[When, Callback]]:
        """What threads and tasks may call by dropping an object."""
        return [
            (functools.partial(self._reaches, stretch, progress), (one, ()))
            for progress, stretch in self.stretches
            for one in called_when_dropped(stretch)
        ]

    def may_set(self, code: Stretch | Callback, flag: Flag) -> bool:
        """Whether a stretch or callback of the lists above may set one of the flag's names."""
        if id(code) not in self._stored:
            self._stored[id(code)] = stored_ahead(code) if isinstance(code, Stretch) else stored_by(code)
        return may_set(self._stored[id(code)], flag)

    def stopping(self, loop: Any, reach: Reach) -> list[When]:
        """The progress of those that may call the loop's own ``stop``; ``reach`` searches for the loop."""
        if id(loop) not in self._stopping:
            self._stopping[id(loop)] = [
                *(
                    functools.partial(self._reaches, one, progress)
                    for progress, one in self.stretches
                    if may_stop(one, loop, reach)
                ),
                *(progress for progress, callback in self.callbacks if callback_may_stop(callback, loop, reach)),
            ]
        return self._stopping[id(loop)]

    def forget(self) -> None:
        """Drop all that was read: frames would stay alive until a collection, since their progress refers to this, too."""
        self.__dict__.clear()

    def _reaches(self, stretch: Stretch, progress: When) -> Progress:
        return self._progress.beyond(stretch, progress())

    def _all_stretches(self) -> Iterator[tuple[When, Stretch]]:
        for place in self._places.threads.values():
            if place.ident != threading.get_ident():
                progress = functools.partial(self._progress.of_thread, place.ident)
                yield from ((progress, one) for one in stretches(place.frames))
                of_trio = map(own_frames_of, compat.trio_coroutines(place.frames))
                yield from ((_at_once, one) for frames in of_trio for one in stretches(frames))
        for loop in self._places.loops():
            for task in compat.tasks_of(loop) or ():
                progress = functools.partial(self._progress.of_task, task)
                yield from ((progress, one) for one in stretches(frames_of_task(task)))


def _all_callbacks(places: Places, open_calls: Iterable[Any], of: ProgressOf) -> Iterator[tuple[When, Callback]]:
    threads = compat.threads()
    for place in places.threads.values():
        thread = threads.get(place.ident)
        if isinstance(thread, threading.Timer):
            carried = compat.thread_arguments(thread)
            yield from ((_at_once, (one, carried)) for one in carried[:1])
            yield from ((_at_once, (one, ())) for one in given_to_timer(thread))
        elif thread is not None and not any(is_application(frame.f_code) for frame in place.frames):
            yield from ((_at_once, one) for one in callbacks_of_starting_thread(thread))
        item = compat.running_item(list(place.frames))
        progress = functools.partial(of.of_thread, place.ident)
        yield from ((progress, (one, ())) for one in compat.item_callbacks(item))
        yield from ((progress, (one, ())) for frame in place.frames for one in compat.result_callbacks(frame))
    for loop in places.loops():
        called = map(compat.callback_of, compat.handles_of(loop) or ())
        progress = functools.partial(of.of_loop, loop)
        for one in called:
            yield from ((progress, each) for each in (one,) if not compat.is_asyncio_internal(one[0]))
            yield from ((progress, (each, ())) for each in given_to_package(one[0]))
        yield from ((progress, one) for one in socket_callbacks(loop))
        for task in compat.tasks_of(loop) or ():
            progress = functools.partial(of.of_task, task)
            yield from ((progress, (one, ())) for one, _ in compat.callbacks_after(task))
    for hook in hooks_of_failure(places):
        yield functools.partial(of.of_failure, hook), (hook.callback, ())
    every = places.threads.values()
    at_once = (*call_callbacks(open_calls, every), *connectivity_callbacks(every))
    yield from ((_at_once, one) for one in at_once)
    yield from ((_at_once, one) for _, one, _ in signal_callbacks(places.loops()))
    yield from ((_at_once, (one, ())) for one in gc.callbacks if is_application_callback(one))
    yield from ((_at_once, (one, ())) for one in functions_given_to_c())
    own = (one for thing, one in compat.finalizers() if is_of_own_module(type(thing)))
    yield from ((_at_once, (one.func, tuple(one.args))) for one in own)


def _at_once() -> Progress:
    return BY_ITSELF
