"""Whether threads and tasks are where they stood at an idle declaration, and whether they rest: for the look for termination.

Rules:

1. A thread or task is where it stood if its application frames are at the same source positions. (Not at the same instructions:
   the condition of a ``while`` is compiled twice.) If it waited without a timeout, and now waits with one, it has gone on:
   a scheduler has been given a job. Whether a wait for descriptors (a selector) has a timeout, the system shows.
2. It rests if only another party of the process can wake it: without a timeout it waits for an event, a condition, a lock or a
   queue. A wait for the result of an item is no rest, since whoever works on the item may be unknown. It also rests while it
   waits for a message at an empty queue or pipe of ``multiprocessing``, whose other processes are looked at themselves, or
   serves until its gRPC server is stopped.
3. The main thread, the main task of a loop, and whoever called ``idle()`` may be elsewhere: at the first call they are often
   still starting the program. They count only if they stood at a queue, or have been seen at one since. But the main thread of
   a process that ``multiprocessing`` has started does that process's work, and is a thread like any other.
4. Whoever has called ``active()`` or ``busy()`` declares its own work, during which the process is not idle.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from types import CodeType, FrameType
from typing import Any
from weakref import ref

from stilltrue.runtime import compat
from stilltrue.runtime.bytecode.instructions import source_position
from stilltrue.runtime.declared.idle_declaration import IdleDeclaration
from stilltrue.runtime.introspection.code_cache import cached_by_code
from stilltrue.runtime.introspection.linux.child_threads import polls_without_end
from stilltrue.runtime.introspection.origins import is_application, is_own_code
from stilltrue.runtime.introspection.tasks import Task, blocking_future, is_timed, read
from stilltrue.runtime.introspection.threads_and_tasks import Place
from stilltrue.runtime.look.progress.analysis import is_endless_service
from stilltrue.runtime.own_ref import OwnRef
from stilltrue.runtime.waits.pipes.resolver import waits_for_message
from stilltrue.runtime.waits.wait import CallStack

FRAMES_MAX = 8
"""The application's innermost frames that are compared (rule 1)."""
_CHAIN_LENGTH_MAX = 20
_SERVICE_DEPTH_MAX = 6
"""The innermost frames among which ``wait_for_termination()`` is: below it, gRPC waits for its event in short steps."""

_Position = tuple[CodeType, Any]


def is_elsewhere(place: Place, covered: IdleDeclaration) -> bool:
    """Whether a covered thread is elsewhere than at the declaration, or waits for a time since (rules 1 and 3)."""
    now = [(frame.f_code, frame.f_lasti) for frame in place.frames[: compat.WHERE_MAX]]
    stood = covered.standing.get(place.ident)
    if place.ident in covered.declaring:
        return False
    may_be_starting = place.ident == covered.by or (place.ident == threading.main_thread().ident and not _is_worker_process())
    if may_be_starting and (stood is None or not compat.is_polled_queue(stood)):
        if compat.is_polled_queue(now):
            covered.standing[place.ident] = tuple(now)
        return False
    timed = place.ident in covered.untimed and not compat.is_endless_wait(place.frames[0])
    thread = compat.threads().get(place.ident)
    if thread is not None and thread.native_id in covered.polling:
        timed = timed or polls_without_end(thread.native_id) is False
    return timed or (stood is not None and _place(stood) != _place(now))


def is_task_elsewhere(task: Task, covered: IdleDeclaration, timed: frozenset[int], *, is_main: bool) -> bool:
    """The same for a task. ``timed``: the tasks and futures that timers wake."""
    now = compat.standing_tasks([task])[task]
    stood = covered.standing_tasks.get(OwnRef(task))
    if id(task) in covered.declaring:
        return False
    if (is_main or id(task) == covered.by) and (stood is None or not compat.is_polled_queue(stood)):
        if compat.is_polled_queue(now):
            covered.standing_tasks[OwnRef(task)] = now
        return False
    begun = ref(task) in covered.untimed_tasks and is_timed(task, timed)
    return begun or (stood is not None and _place(reversed(stood)) != _place(reversed(now)))


def rests(place: Place, threads: Mapping[int, Place], length_max: int = _CHAIN_LENGTH_MAX) -> bool:
    """Whether a thread rests (rule 2), or waits for the end of one that does. ``threads``: all, by identity."""
    frames = place.frames
    if serves(frames) or waits_for_message(CallStack(tuple(frames), place.ident)):
        return True
    joined = compat.joined_at(frames[0])
    if joined:
        others = [threads.get(one.ident or 0) for one in joined]
        return length_max > 0 and all(one is not None and rests(one, threads, length_max - 1) for one in others)
    return compat.is_endless_wait(frames[0]) and not compat.waits_for_result(frames)


def serves(frames: Sequence[FrameType]) -> bool:
    """Whether a thread or task only keeps a gRPC server alive."""
    return any(compat.is_grpc(one.f_code.co_filename) and is_endless_service(one) for one in frames[:_SERVICE_DEPTH_MAX])


def _is_worker_process() -> bool:
    """Whether ``multiprocessing`` has started this process."""
    module = sys.modules.get("multiprocessing.process")
    return module is not None and module.__dict__.get("_parent_process") is not None


def task_rests(task: Task, timed: frozenset[int], length_max: int = _CHAIN_LENGTH_MAX) -> bool:
    """Whether a task rests (rule 2), or awaits only tasks that do. ``timed``: the tasks and futures that timers wake."""
    future = blocking_future(task)
    if future is None or not length_max or is_timed(task, timed):
        return False
    awaited = read(task, future)
    if awaited is None:
        return compat.task_waits_in_asyncio(task)
    inner = [one for one in awaited.futures if compat.is_task(one)]
    ended = awaited.until is not None or len(inner) < len(awaited.futures)
    return not ended and all(task_rests(one, timed, length_max - 1) for one in inner)


def has_own_code(task: Task) -> bool:
    """Whether the application's own code, not only an installed package's, runs in ``task``."""
    return any(code is not None and is_own_code(code) for code in map(compat.code_of, compat.await_chain(task.get_coro())))


def _place(frames: Iterable[tuple[CodeType, int]]) -> list[_Position]:
    """The source positions of the application's frames, innermost first."""
    own = ((code, at) for code, at in frames if is_application(code))
    return [(code, _position(code, at)) for code, at in islice(own, FRAMES_MAX)]


@cached_by_code
def _position(code: CodeType, at: int) -> Any:
    """The source position of the instruction at the offset ``at``; the offset itself if it is unknown."""
    return source_position(code, at)
