"""Reads private parts of threading and concurrent.futures: where threads wait, and what executors run."""

from __future__ import annotations

import asyncio
import gc
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import _base, thread
from itertools import islice
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any

from stilltrue.runtime.bytecode.qualified_names import qualname_of
from stilltrue.runtime.compat.callables import Where, content_of
from stilltrue.runtime.compat.loops.event_loops import callbacks_after, callbacks_of
from stilltrue.runtime.introspection.code_cache import cached_by_code
from stilltrue.runtime.introspection.frames import caller_of, innermost_frames, variables_of
from stilltrue.runtime.own_threads import all_threads

THREAD_START: CodeType = threading.Thread.start.__code__
"""Where a thread waits for a new thread to begin."""
WHERE_MAX = 40
"""The innermost frames that make a thread's position."""
_FUTURE_FILE = _base.__file__
_CONDITION_WAIT: CodeType = threading.Condition.wait.__code__
_QUEUE_GETS = (queue.Queue.get.__code__, asyncio.Queue.get.__code__)
_RESULTS = frozenset({_base.Future.result.__code__, _base.Future.exception.__code__})
_EVENT_WAIT: CodeType = threading.Event.wait.__code__
_NOTICED = (_base.CANCELLED_AND_NOTIFIED, _base.FINISHED)
_SEVERAL = frozenset({_base.wait.__code__, _base.as_completed.__code__})
_AT_EXIT: FunctionType = threading._shutdown  # type: ignore[attr-defined]  # noqa: SLF001 - where the main thread ends
_ITEM_RUN: CodeType = thread._WorkItem.run.__code__  # noqa: SLF001 - what an executor's worker runs
_ASGIREF = os.path.join("asgiref", "current_thread_executor.py")  # noqa: PTH118 - the end of a code's file name
_STDLIB = Path(threading.__file__).parent
_PROCESSES = (_STDLIB / "concurrent" / "futures" / "process.py", _STDLIB / "multiprocessing" / "pool.py")
_POOL_FILE = str(_PROCESSES[1])
_AWAITS_RESULT = frozenset({"result", "exception", "wait", "as_completed", "get", "next"})
_EXECUTOR_FILES = frozenset({thread.__file__, *map(str, _PROCESSES)})
"""Files in which executor items run or their results arrive. The module for processes need not be loaded."""
_EXECUTORS_QUEUES = getattr(getattr(thread, "_threads_queues", None), "data", None)
_EXECUTOR_GONE = "ThreadPoolExecutor._adjust_thread_count.<locals>.weakref_cb"
_POOL_RECEIVES = "Pool._handle_results"
_POOL_MAINTAINS = "Pool._handle_workers"
_EXECUTOR_RECEIVES = "_ExecutorManagerThread.run"
_OF_THREAD = 6
"""Clock id bits for the processor time of one thread (CPUCLOCK_SCHED, CPUCLOCK_PERTHREAD)."""
SCHED_FILE = str(Path(threading.__file__).with_name("sched.py"))
"""The file of ``sched``, which is not imported: a program may have a module of that name."""
SIGNALS_OF_ALARMS = {
    signal.ITIMER_REAL: signal.SIGALRM,
    signal.ITIMER_VIRTUAL: signal.SIGVTALRM,
    signal.ITIMER_PROF: signal.SIGPROF,
}
"""The signal that each kind of timer sends."""


def threads() -> dict[int, threading.Thread]:
    """All threads known to Python, by identity."""
    return {one.ident: one for one in all_threads() if one.ident is not None}


def values_in_threads(local: Any) -> list[Any]:
    """The values of all threads in a ``threading.local``, which has a dictionary of their dictionaries."""
    tables = [held for held in gc.get_referents(local) if type(held) is dict] if type(local) is threading.local else []
    spaces = [space for table in tables for space in list(table.values()) if type(space) is dict]
    return [value for space in spaces for value in list(space.values())]


def thread_arguments(started: threading.Thread) -> tuple[Any, ...]:
    """The arguments a thread was started with: its target, a timer's function, and their arguments."""
    names = object.__getattribute__(started, "__dict__")
    found: list[Any] = [names.get("_target"), names.get("function")]
    for name in ("_args", "args"):
        found += names.get(name) or ()
    for name in ("_kwargs", "kwargs"):
        found += (names.get(name) or {}).values()
    return tuple(one for one in found if one is not None)


def is_future_code(code: CodeType) -> bool:
    """Whether this is the code of a ``concurrent.futures`` future."""
    return code.co_filename == _FUTURE_FILE


def is_executor_code(code: CodeType) -> bool:
    """Whether this is the code of an executor or pool worker, or of the thread that receives results from processes."""
    return code.co_filename in _EXECUTOR_FILES


def only_ends_executors_threads(holder: Any) -> bool:
    """Whether ``concurrent.futures`` keeps it only to tell an executor's threads to end."""
    if holder is _EXECUTORS_QUEUES:
        return holder is not None
    return type(holder) is FunctionType and holder.__qualname__ == _EXECUTOR_GONE and is_executor_code(holder.__code__)


def alarms() -> dict[int, float]:
    """The active interval timers and the seconds (real or processor time) until each fires."""
    return {timer: left for timer in SIGNALS_OF_ALARMS if (left := signal.getitimer(timer)[0])}


def native_ids() -> frozenset[int]:
    """The system's ids of all threads started by Python. Unlike identities, they are not reused soon."""
    threads = list(threading._active.values())  # type: ignore[attr-defined]  # noqa: SLF001 - enumerate() takes a lock
    return frozenset(thread.native_id for thread in threads if thread.native_id is not None)


def native_id(ident: int) -> int | None:
    """The system's id of a thread known to Python."""
    thread = threading._active.get(ident)  # type: ignore[attr-defined]  # noqa: SLF001 - as above
    return None if thread is None else thread.native_id


def processor_time(ident: int) -> float | None:
    """A thread's processor time so far, which changes whenever it runs; None if the system does not report it."""
    thread = threading._active.get(ident)  # type: ignore[attr-defined]  # noqa: SLF001 - enumerate() takes a lock
    native = None if thread is None else thread.native_id
    if native is None or sys.platform != "linux":
        return None
    try:
        return time.clock_gettime((~native << 3) | _OF_THREAD)
    except OSError:  # the thread is gone
        return None


def standing_threads() -> dict[int, Where]:
    """All threads (identities) and their positions."""
    return {ident: _where_of(frame) for ident, frame in innermost_frames().items()}


def untimed_threads() -> frozenset[int]:
    """The threads (identities) that wait for another party without a timeout."""
    return frozenset(ident for ident, frame in innermost_frames().items() if is_endless_wait(frame))


def _where_of(frame: FrameType) -> Where:
    """The position of a thread: its innermost frames."""
    found: list[tuple[CodeType, int]] = []
    here: FrameType | None = frame
    while here is not None and len(found) < WHERE_MAX:
        found.append((here.f_code, here.f_lasti))
        here = caller_of(here)
    return tuple(found)


def waits_for_result(frames: Iterable[FrameType]) -> bool:
    """Whether a thread waits for a future, or for a result of a ``multiprocessing`` pool."""
    known = ((one.f_code.co_filename, one.f_code.co_name) for one in islice(frames, WHERE_MAX))
    return any(name in _AWAITS_RESULT and file in (_FUTURE_FILE, _POOL_FILE) for file, name in known)


def is_polled_queue(where: Iterable[tuple[CodeType, int]]) -> bool:
    """Whether a thread or task at this position takes from a ``queue.Queue`` or ``asyncio.Queue``."""
    return any(code in _QUEUE_GETS for code, _ in where)


def is_timer_thread(started: threading.Thread | None, frames: Iterable[FrameType]) -> bool:
    """Whether a thread is a ``threading.Timer`` or runs a ``sched.scheduler``."""
    return isinstance(started, threading.Timer) or any(
        frame.f_code.co_filename == SCHED_FILE and frame.f_code.co_name == "run" for frame in frames
    )


def is_endless_wait(frame: FrameType) -> bool:
    """Whether a frame is in one of Python's own waits without a timeout: for a condition, event, queue or thread."""
    code = frame.f_code
    if code.co_filename == threading.__file__ and code.co_name in ("wait", "join"):  # "join": since Python 3.13
        return variables_of(frame).get("timeout", 0) is None
    if code.co_filename != threading.__file__ or code.co_name != "_wait_for_tstate_lock":
        return False
    timeout = variables_of(frame).get("timeout", -1)
    return not isinstance(timeout, int | float) or timeout < 0


def waits_for_event(frames: Sequence[FrameType]) -> bool:
    """Whether a thread waits for a ``threading.Event``."""
    return len(frames) > 1 and frames[0].f_code is _CONDITION_WAIT and frames[1].f_code is _EVENT_WAIT


def future_awaited(frame: FrameType) -> Any:
    """The future for whose result this frame waits without a timeout, or None."""
    outer = caller_of(frame)
    if frame.f_code is not _CONDITION_WAIT or outer is None or outer.f_code not in _RESULTS:
        return None
    names = variables_of(outer)
    return names.get("self") if names.get("timeout", 0) is None else None


def awaited_at(frame: FrameType) -> tuple[Any, tuple[Any, ...], bool] | None:
    """What this frame waits for without a timeout: the object, the futures or threads, and whether it needs all."""
    if frame.f_code is _AT_EXIT.__code__:
        left = _threads_awaited_at_exit()
        return (_AT_EXIT, left, True) if left else None
    future = future_awaited(frame)
    if future is not None:
        return future, (future,), True
    if not is_endless_wait(frame):
        return None
    names = variables_of(frame)
    joined = names.get("self")
    if isinstance(joined, threading.Thread):
        beginning = any(one.f_code is THREAD_START for one in (frame, caller_of(frame)) if one is not None)
        return None if beginning else (joined, (joined,), True)
    return _several_awaited(frame)


def _threads_awaited_at_exit() -> tuple[threading.Thread, ...]:
    """The threads for whose end Python waits when the main thread has run all of the program."""
    threads = list(threading._active.values())  # type: ignore[attr-defined]  # noqa: SLF001 - enumerate() takes a lock
    return tuple(one for one in threads if not one.daemon and one is not threading.main_thread())


def joined_at(frame: FrameType) -> tuple[threading.Thread, ...]:
    """The threads for the end of all of which this frame waits without a timeout."""
    awaited = awaited_at(frame)
    return () if awaited is None else tuple(one for one in awaited[1] if isinstance(one, threading.Thread))


def _several_awaited(frame: FrameType) -> tuple[Any, tuple[Any, ...], bool] | None:
    """The futures that ``wait`` or ``as_completed`` waits for."""
    event = caller_of(frame)
    outer = None if event is None or event.f_code is not _EVENT_WAIT else caller_of(event)
    if outer is None or outer.f_code not in _SEVERAL:
        return None
    names = variables_of(outer)
    waiter = names.get("waiter")
    left = tuple(one for one in list(names.get("fs") or ()) if not is_finished(one))
    if waiter is None or names.get("timeout", 0) is not None or not left:
        return None
    return waiter, left, names.get("return_when") == _base.ALL_COMPLETED


def cancelled_unnoticed(frame: FrameType) -> Any:
    """A cancelled future for which ``wait`` or ``as_completed``, this frame, waits on: only its executor would tell it.

    If a future may end the wait by itself, it must be the only one left. None if there is no such future.
    """
    names = variables_of(frame) if frame.f_code in _SEVERAL else {}
    if names.get("waiter") is None or names.get("timeout", 0) is not None:
        return None
    left = [one for one in list(names.get("fs") or ()) if getattr(one, "_state", None) not in _NOTICED]
    cancelled = next((one for one in left if getattr(one, "_state", None) == _base.CANCELLED), None)
    return cancelled if len(left) == 1 or names.get("return_when") == _base.ALL_COMPLETED else None


def starts_coroutine_of(future: Any, handle: Any) -> bool:
    """Whether a pending loop callback is the one by which ``run_coroutine_threadsafe`` starts the coroutine of ``future``."""
    callback: Any = getattr(handle, "_callback", None)
    code = getattr(callback, "__code__", None)
    if code is None or getattr(callback, "__qualname__", "") != "run_coroutine_threadsafe.<locals>.callback":
        return False
    return "future" in code.co_freevars and content_of(callback.__closure__[code.co_freevars.index("future")]) is future


def is_running_future(future: Any) -> bool:
    """Whether a future is running, so that it cannot be cancelled."""
    return getattr(future, "_state", None) == _base.RUNNING


def is_finished(future: Any) -> bool:
    """Whether a ``concurrent.futures`` future has a result or was cancelled."""
    return getattr(future, "_state", None) not in (_base.PENDING, _base.RUNNING)


def running_item(frames: list[FrameType]) -> Any:
    """The future of the item that an executor's thread runs."""
    for frame in frames:
        if frame.f_code is _ITEM_RUN:
            return getattr(variables_of(frame).get("self"), "future", None)
    return None


def running_items(frames: list[FrameType]) -> list[Any]:
    """The futures of all items that a thread runs, innermost first: of an executor's thread, and of asgiref's executors."""
    running = (frame for frame in frames if frame.f_code is _ITEM_RUN or _is_asgirefs_item(frame.f_code))
    found = (getattr(variables_of(frame).get("self"), "future", None) for frame in running)
    return [future for future in found if future is not None]


@cached_by_code
def _is_asgirefs_item(code: CodeType) -> bool:
    return qualname_of(code) == "_WorkItem.run" and code.co_filename.endswith(_ASGIREF)


def item_callbacks(future: Any) -> tuple[Any, ...]:
    """The application's done callbacks of an executor's item, and of the futures of a loop that it completes."""
    return tuple(callback for callback, _ in callbacks_after(future))


def scheduler_events(frames: Iterable[FrameType]) -> list[Any]:
    """The events of the ``sched.scheduler`` that a thread runs."""
    running = (frame for frame in frames if frame.f_code.co_filename == SCHED_FILE and frame.f_code.co_name == "run")
    scheduler = next((variables_of(frame).get("self") for frame in running), None)
    return list(getattr(scheduler, "_queue", ()))


def result_callbacks(frame: FrameType) -> tuple[Any, ...]:
    """The callbacks for finished items of a ``multiprocessing`` pool or a ``ProcessPoolExecutor``, run in this frame."""
    code, names = frame.f_code, variables_of(frame) if frame.f_code.co_filename in _EXECUTOR_FILES else {}
    if qualname_of(code) == _POOL_RECEIVES:
        items = list((names.get("cache") or {}).values())
        found = (getattr(one, name, None) for one in items for name in ("_callback", "_error_callback"))
        return tuple(one for one in found if one is not None)
    if qualname_of(code) == _EXECUTOR_RECEIVES:
        work = list((getattr(names.get("self"), "pending_work_items", None) or {}).values())
        return tuple(callback for one in work for callback in item_callbacks(one.future))
    return ()


def pool_items(frame: FrameType) -> frozenset[tuple[int, int]]:
    """The unfinished items of the process pool whose results this frame receives: the pool's identity and their numbers."""
    code, names = frame.f_code, variables_of(frame) if frame.f_code.co_filename in _EXECUTOR_FILES else {}
    items: Any = None
    if qualname_of(code) == _POOL_RECEIVES:
        items = names.get("cache")
    elif qualname_of(code) == _EXECUTOR_RECEIVES:
        items = getattr(names.get("self"), "pending_work_items", None)
    return frozenset((id(items), number) for number in list(items or ()))


def idle_pool_processes(frame: FrameType) -> tuple[int, ...]:
    """The process ids of a ``multiprocessing`` pool or ``ProcessPoolExecutor`` without items, managed in this frame."""
    code, names = frame.f_code, variables_of(frame) if frame.f_code.co_filename in _EXECUTOR_FILES else {}
    items: Any = None
    workers: Any = ()
    if qualname_of(code) == _POOL_MAINTAINS:
        items, workers = names.get("cache"), names.get("pool")
    elif qualname_of(code) == _EXECUTOR_RECEIVES:
        manager = names.get("self")
        items, workers = getattr(manager, "pending_work_items", None), (getattr(manager, "processes", None) or {}).values()
    if items is None or len(items):
        return ()
    pids = (getattr(getattr(one, "_popen", None), "pid", None) for one in list(workers or ()))
    return tuple(pid for pid in pids if pid is not None)


def source_of(future: Any) -> Any:
    """The future or task of another kind that completes this one (asyncio chains them), or None."""
    callbacks = getattr(future, "_done_callbacks", None)
    if callbacks is None:
        callbacks = [callback for callback, _ in callbacks_of(future)]
    for callback in list(callbacks):
        code = getattr(callback, "__code__", None)
        if (
            code is not None
            and getattr(callback, "__qualname__", "") == "_chain_future.<locals>._call_check_cancel"
            and "source" in code.co_freevars
        ):
            return content_of(callback.__closure__[code.co_freevars.index("source")])
    return None
