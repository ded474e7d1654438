"""The only module that touches private parts of gRPC, asyncio, threading and coroutines.

Nothing here runs the application's code or takes one of its locks. What cannot be read is None: doubt, for the caller to say.
"""

from __future__ import annotations

import asyncio
import functools
import gc
import queue
import sched
import threading
import time
from asyncio import tasks
from collections.abc import Callable, Iterable
from concurrent.futures import _base, thread
from contextvars import Context
from pathlib import Path
from types import BuiltinFunctionType, CellType, CodeType, CoroutineType, FrameType, FunctionType, MethodType
from typing import Any
from weakref import ref

import grpc
import grpc.aio
from grpc import _channel
from grpc.aio import _channel as _aio_channel

from stilltrue.runtime.frames import caller_of, frame_of, frames_of_threads, innermost_frames, variables_of

Task = asyncio.Task[Any]
Where = tuple[tuple[CodeType, int], ...]
"""Where a thread or task stands: its codes and the instruction in each."""
CHAIN_LENGTH_MAX = 200
CALLBACKS_MAX = 10_000
DEADLINE_SECONDS_MAX = 10.0**8
"""gRPC reports a deadline this far off, or farther, when there is none."""
_WHERE_MAX = 8
_ATTEMPTS = 10
_GRPC = str(Path(grpc.__file__).parent)
_ASYNCIO = str(Path(asyncio.__file__).parent)
THREAD_START: CodeType = threading.Thread.start.__code__
"""Where a thread waits for one that it starts to begin."""
ASYNCIO_WAITS = frozenset({asyncio.locks.__file__, asyncio.queues.__file__})
"""Where asyncio's own waits for an event, a lock or a queue stand."""
_FUTURE_FILE = _base.__file__
_WRAPPERS = frozenset({"async_generator_asend", "async_generator_athrow", "coroutine_wrapper", "anext_awaitable"})
_AWAITING = frozenset({"coroutine", "generator", "async_generator", *_WRAPPERS})
_CHAINED = "_chain_future.<locals>._call_check_cancel"
_SLEEP: CodeType = asyncio.sleep.__code__
_STEP: CodeType = asyncio.Handle._run.__code__  # noqa: SLF001 - what a loop runs
_CONDITION_WAIT: CodeType = threading.Condition.wait.__code__
_QUEUE_GET: CodeType = queue.Queue.get.__code__
_RESULTS = frozenset({_base.Future.result.__code__, _base.Future.exception.__code__})
_ITEM_RUN: CodeType = thread._WorkItem.run.__code__  # noqa: SLF001 - what an executor's worker runs
_OF_TASKS = frozenset({"_set_result_unless_cancelled", "_release_waiter", "_on_timeout"})
_EXECUTOR_FILE = thread.__file__
"""Which field of a thread's ``stat`` is its start, counted from behind its name."""
SCHED_FILE = sched.__file__
_SERVER_DEPTH_MAX = 6
_AIO_SERVER = "AioServer"
_STANDS_BEFORE = (
    ((grpc.Channel, grpc.aio.Channel), ("_inner", "_channel")),
    ((grpc.Server, grpc.aio.Server), ("_state", "_server")),
)
_PLAIN_TARGETS = ("dns:///", "ipv4:", "ipv6:")
"""How the targets begin whose resolver gives addresses and nothing else: no routes, no time-outs."""
_KINDS = ("unary_unary", "unary_stream", "stream_unary", "stream_stream")
_GRPC_COMPILED = "grpc/_cython/"
_GRPC_COROUTINES = ("AioServer.", "AioChannel.", "_AioCall.", "_handle_", "_request_call", "_server_", "_schedule_rpc_coro")
_GATHERING: type = tasks._GatheringFuture  # type: ignore[attr-defined]  # noqa: SLF001 - what asyncio.gather returns


# -- asyncio -----------------------------------------------------------------------------------------------------------


def tasks_of(loop: asyncio.AbstractEventLoop) -> list[Task] | None:
    """The tasks of ``loop`` that are not done, whichever thread runs it."""
    try:
        return list(asyncio.all_tasks(loop))
    except RuntimeError:  # it changes too fast
        return None


def callbacks_of(future: Any) -> list[tuple[Any, Any]]:
    """The done callbacks of a future or task, each with its context."""
    return list(getattr(future, "_callbacks", None) or ())


def handles_of(loop: asyncio.AbstractEventLoop) -> list[asyncio.Handle] | None:
    """What ``loop`` has scheduled, timers and callbacks that are ready; None for a loop that does not show it (uvloop)."""
    scheduled, ready = getattr(loop, "_scheduled", None), getattr(loop, "_ready", None)
    if scheduled is None or ready is None:
        return None
    for _ in range(_ATTEMPTS):
        try:
            return [handle for handle in (*list(scheduled), *list(ready)) if not handle.cancelled()]
        except RuntimeError:  # the deque changed while it was read
            continue
    return None


def called_by(handle: asyncio.Handle) -> tuple[Any, tuple[Any, ...]]:
    """What a handle calls, and with which arguments."""
    return getattr(handle, "_callback", None), tuple(getattr(handle, "_args", None) or ())


def context_of(handle_or_task: Any) -> Context | None:
    """The context in which a task, timer or callback runs."""
    if isinstance(handle_or_task, asyncio.Handle):
        found: Context | None = getattr(handle_or_task, "_context", None)
        return found
    read = getattr(handle_or_task, "get_context", None)  # from Python 3.12
    if read is not None:
        context: Context = read()
        return context
    return next((one for one in gc.get_referents(handle_or_task) if type(one) is Context), None)


def is_gathering(future: Any) -> bool:
    """Whether ``future`` is what ``asyncio.gather`` returned."""
    return issubclass(type(future), _GATHERING)


def is_task(future: Any) -> bool:
    """Whether it is a task."""
    return issubclass(type(future), asyncio.Task)


def task_waits_at(task: Task) -> Where | None:
    """Where ``task`` waits until somebody else acts: on a queue, an event, a future; None in a sleep, in a call, or at work."""
    future = getattr(task, "_fut_waiter", None)
    if future is None or is_task(future) or future.done() or task.done():
        return None
    chain = chain_of(task.get_coro())
    if not chain or code_of(chain[-1]) in {None, _SLEEP}:
        return None
    return tuple((frame.f_code, frame.f_lasti) for one in chain if (frame := frame_of(one)) is not None)


def waiting_tasks() -> dict[Task, Where]:
    """The tasks of all loops that run which wait for others, and where."""
    loops = {loop for frames in frames_of_threads().values() for one in frames if (loop := loop_in(one)) is not None}
    places = {task: task_waits_at(task) for loop in loops for task in tasks_of(loop) or ()}
    return {task: where for task, where in places.items() if where is not None}


def current_task_of(loop: asyncio.AbstractEventLoop) -> Task | None:
    """The task that ``loop`` runs at this moment, from any thread."""
    return asyncio.current_task(loop)


def is_being_cancelled(task: Task) -> bool:
    """Whether somebody has asked to cancel ``task``; Python 3.10 forgets that once the task is told."""
    cancelling = getattr(task, "cancelling", None)
    if cancelling is not None:
        return bool(cancelling())
    for _ in range(CHAIN_LENGTH_MAX):  # there, the request is passed on to what the task awaits
        future = getattr(task, "_fut_waiter", None)
        if getattr(task, "_must_cancel", False) or not isinstance(future, asyncio.Task):
            return bool(getattr(task, "_must_cancel", False)) or (future is not None and future.cancelled())
        task = future
    return True


def chain_of(coroutine: Any) -> list[Any]:
    """``coroutine`` and what it awaits, outermost first, down to the last that Python can look into."""
    chain: list[Any] = []
    while _is_awaiting(coroutine) and len(chain) < CHAIN_LENGTH_MAX:
        if frame_of(coroutine) is not None or hasattr(coroutine, "cr_await"):
            chain.append(coroutine)
        coroutine = _below(coroutine)
    return chain


def _is_awaiting(thing: Any) -> bool:
    """Whether it is a coroutine or the like, Python's own or Cython's; no other object is asked what it awaits."""
    kind = type(thing)
    if kind.__name__ not in _AWAITING:
        return False
    return kind.__module__ == "builtins" or type.__repr__(kind).startswith("<class '_cython")


def _below(coroutine: Any) -> Any:
    for name in ("cr_await", "gi_yieldfrom", "ag_await"):
        below = getattr(coroutine, name, None)
        if below is not None:
            return below
    if type(coroutine).__name__ in _WRAPPERS:
        return next((one for one in gc.get_referents(coroutine) if frame_of(one) is not None), None)
    return None


def loop_in(frame: FrameType) -> asyncio.AbstractEventLoop | None:
    """The event loop that a thread runs, if it stands here in the running of it."""
    code = frame.f_code
    if code.co_name != "run_forever":
        return None
    loop = variables_of(frame).get("self")
    return loop if isinstance(loop, asyncio.AbstractEventLoop) else None


def run_by_asyncio(frames: Iterable[FrameType]) -> Task | None:
    """The task for which ``asyncio.run`` runs a loop in a thread with these frames: at its end all others are cancelled."""
    task = None
    for frame in frames:
        if is_loop_code(frame.f_code) and frame.f_code.co_name == "run_until_complete":
            task = variables_of(frame).get("future")
        if is_loop_code(frame.f_code) and qualname_of(frame.f_code) == "run":
            return task if is_task(task) else None
    return None


def is_asyncio(callback: Any) -> bool:
    """Whether a callback is one of asyncio's own: they wake who awaits, which is known otherwise."""
    code, _, _ = called_in(callback)
    if code is not None:
        return is_loop_code(code)
    return _is_of_asyncio(type(callback)) or (type(callback) is BuiltinFunctionType and "wakeup" in callback.__name__)


def is_of_a_task(callback: Any) -> bool:
    """Whether a scheduled callback is a task's own: its next step, the end of its sleep, its timeout."""
    if any(is_task(one) for one in bound_to(callback)):
        return True
    code, _, _ = called_in(callback)
    return code is not None and is_loop_code(code) and code.co_name in _OF_TASKS


def is_step(code: CodeType) -> bool:
    """Whether this is where a loop runs one callback, or one step of a task."""
    return code is _STEP


def is_loop_code(code: CodeType) -> bool:
    """Whether this is asyncio's own code."""
    return code.co_filename.startswith(_ASYNCIO)


# -- threads -----------------------------------------------------------------------------------------------------------


def threads() -> dict[int, threading.Thread]:
    """The threads that Python knows, by identity."""
    return {one.ident: one for one in threading.enumerate() if one.ident is not None}


def carried_by(started: threading.Thread) -> tuple[Any, ...]:
    """What a thread was started with: its target, a timer's function, and their arguments."""
    names = object.__getattribute__(started, "__dict__")
    found: list[Any] = [names.get("_target"), names.get("function")]
    for name in ("_args", "args"):
        found += names.get(name) or ()
    for name in ("_kwargs", "kwargs"):
        found += (names.get(name) or {}).values()
    return tuple(one for one in found if one is not None)


def is_future_code(code: CodeType) -> bool:
    """Whether this is the code of ``concurrent.futures``' futures."""
    return code.co_filename == _FUTURE_FILE


def is_executor_code(code: CodeType) -> bool:
    """Whether this is the code of an executor's worker."""
    return code.co_filename == _EXECUTOR_FILE


def native_ids() -> frozenset[int]:
    """The system's numbers of the threads that Python has started: unlike identities, they are not soon given again."""
    threads = list(threading._active.values())  # type: ignore[attr-defined]  # noqa: SLF001 - enumerate() takes a lock
    return frozenset(thread.native_id for thread in threads if thread.native_id is not None)


def waiting_threads() -> dict[int, Where]:
    """The threads (identities) that wait for others, and where."""
    places = {ident: waits_at(frame) for ident, frame in innermost_frames().items()}
    return {ident: where for ident, where in places.items() if where is not None}


def waits_at(frame: FrameType) -> Where | None:
    """Where a thread waits for others: with no timeout of its own, or for what comes on a queue; None: it does not."""
    outer = caller_of(frame)
    polls = frame.f_code is _CONDITION_WAIT and outer is not None and outer.f_code is _QUEUE_GET
    if not (polls or is_endless_wait(frame)):
        return None
    found: list[tuple[CodeType, int]] = []
    here: FrameType | None = frame
    while here is not None and len(found) < _WHERE_MAX:
        found.append((here.f_code, here.f_lasti))
        here = caller_of(here)
    return tuple(found)


def is_timer_thread(started: threading.Thread | None, frames: Iterable[FrameType]) -> bool:
    """Whether a thread is a ``threading.Timer``, or runs a ``sched.scheduler``."""
    return isinstance(started, threading.Timer) or any(
        frame.f_code.co_filename == SCHED_FILE and frame.f_code.co_name == "run" for frame in frames
    )


def is_endless_wait(frame: FrameType) -> bool:
    """Whether a thread stands in a wait of Python's own that has no timeout: for a condition, an event, a queue, a thread."""
    code = frame.f_code
    if code.co_filename == threading.__file__ and code.co_name in ("wait", "join"):  # "join": from Python 3.13
        return variables_of(frame).get("timeout", 0) is None
    if code.co_filename != threading.__file__ or code.co_name != "_wait_for_tstate_lock":
        return False
    timeout = variables_of(frame).get("timeout", -1)
    return not isinstance(timeout, int | float) or timeout < 0


def future_awaited(frame: FrameType) -> Any:
    """The future for whose result a thread waits without a timeout, if it stands here in that wait."""
    outer = caller_of(frame)
    if frame.f_code is not _CONDITION_WAIT or outer is None or outer.f_code not in _RESULTS:
        return None
    names = variables_of(outer)
    return names.get("self") if names.get("timeout", 0) is None else None


def is_being_run(future: Any) -> bool:
    """Whether somebody works on a future, so that nobody can cancel it."""
    return getattr(future, "_state", None) == _base.RUNNING


def item_run_by(frames: list[FrameType]) -> Any:
    """The future whose item an executor's thread runs."""
    for frame in frames:
        if frame.f_code is _ITEM_RUN:
            return getattr(variables_of(frame).get("self"), "future", None)
    return None


def source_of(future: Any) -> Any:
    """The future, or task, of another kind that ends this one (asyncio chains them); None when there is none."""
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
            return _content(callback.__closure__[code.co_freevars.index("source")])
    return None


# -- gRPC --------------------------------------------------------------------------------------------------------------


def is_grpc(filename: str) -> bool:
    """Whether a code's file is gRPC's own."""
    return filename.startswith(_GRPC) or _GRPC_COMPILED in filename


def is_grpc_task(task: Task) -> bool:
    """Whether ``task`` is one that gRPC keeps for a call or a server."""
    coroutine = task.get_coro()
    code = getattr(coroutine, "cr_code", None)
    if code is None:  # compiled; up to grpcio 1.65 it does not say where
        return type(coroutine) is not CoroutineType and str(getattr(coroutine, "__qualname__", "")).startswith(_GRPC_COROUTINES)
    return is_grpc(str(getattr(code, "co_filename", "")))


def target_of(channel: Any) -> str | None:
    """What gRPC's core dials for a channel of gRPC's own; None where interceptors are beneath, or it does not say."""
    if type(channel) not in (_channel.Channel, _aio_channel.Channel):
        return None
    if any(getattr(channel, f"_{kind}_interceptors", None) for kind in _KINDS):
        return None
    target = getattr(getattr(channel, "_channel", None), "target", None)
    found = target() if callable(target) else target  # the one of grpc.aio, from 1.85 on, has it as a value
    text = found.decode() if isinstance(found, bytes) else ""
    return text if text.startswith(_PLAIN_TARGETS) else None


def options_of(channel: Any) -> tuple[tuple[str, Any], ...] | None:
    """The options that a channel (threads) was made with; None: nobody can tell."""
    if type(channel) is not _channel.Channel:
        return None
    for held in gc.get_referents(getattr(channel, "_channel", None)):
        if type(held) is tuple and all(type(one) is tuple and len(one) == 2 for one in held):
            return held
    return None


def callbacks_of_served(context: Any) -> list[Any] | None:
    """What a handler's context calls when its call is over; None: nobody can tell."""
    state = getattr(context, "_state", None)
    if state is None or not hasattr(state, "callbacks"):
        return None
    return list(state.callbacks or ())


def callbacks_of_made(call: Any) -> list[Any] | None:
    """What a call object of ours or of gRPC's (threads) calls when the call is over; None: nobody can tell."""
    state = getattr(call, "_state", None)
    if state is None or not hasattr(state, "callbacks"):
        return None
    return list(state.callbacks or ())


def seconds_left(submitted: Iterable[Any]) -> float | None:
    """What is left of a call for which gRPC has submitted these arguments to a pool; None: no deadline, or none known."""
    for one in submitted:
        deadline = getattr(getattr(one, "call_details", None), "deadline", None)
        if isinstance(deadline, float):
            left = deadline - time.time()
            return left if left < DEADLINE_SECONDS_MAX else None
    return None


def is_feeding(frame: FrameType) -> bool:
    """Whether gRPC's thread that feeds a request stream stands here."""
    code = frame.f_code
    return code.co_name == "consume_request_iterator" and is_grpc(code.co_filename)


def state_in(frame: FrameType) -> Any:
    """The state of a call (threads) in a frame of gRPC's that waits for it or feeds it."""
    code = frame.f_code
    if not is_grpc(code.co_filename):
        return None
    names = variables_of(frame)
    state = names.get("state")
    return state if state is not None else getattr(names.get("self"), "_state", None)


def feeder_of(call: Any) -> Task | None:
    """The task that feeds the request stream of a call of ``grpc.aio``, if one still does."""
    feeder = getattr(call, "_async_request_poller", None)
    return feeder if isinstance(feeder, asyncio.Task) and not feeder.done() else None


def is_serving(frame: FrameType) -> bool:
    """Whether gRPC's thread of a server stands here."""
    code = frame.f_code
    return code.co_name == "_serve" and is_grpc(code.co_filename)


def is_stopping(server: Any) -> bool:
    """Whether a server, as gRPC keeps it, takes no more calls: it has been stopped, and grace may be left.

    One on an event loop shows it by the lock of its shutdown, and by the end of the task in which it accepts calls.
    """
    if type(server).__name__ == _AIO_SERVER:
        return any(map(_shows_stop, gc.get_referents(server)))
    return getattr(getattr(server, "stage", None), "value", "started") != "started"


def _shows_stop(part: Any) -> bool:
    return bool(part.done()) if is_task(part) else type(part) is asyncio.Lock and part.locked()


def stopping_of(server: Any) -> Callable[[], bool]:
    """What says, as :func:`is_stopping` does, whether a server is being stopped, and keeps nothing of it alive."""
    if server is None:
        return bool
    if type(server).__name__ == _AIO_SERVER:
        parts = [ref(one) for one in gc.get_referents(server) if is_task(one) or type(one) is asyncio.Lock]
        return lambda: any((one := weak()) is None or _shows_stop(one) for weak in parts)
    state = ref(server)
    return lambda: (found := state()) is not None and is_stopping(found)


def calls_of(server_state: Any) -> set[int]:
    """The identities of the calls that a server has, as their contexts keep them."""
    return {id(state) for state in list(getattr(server_state, "rpc_states", ()))}


def aio_server_of(task: Task) -> Any:
    """gRPC's own server object whose call ``task`` serves, on an event loop; None when it cannot be found."""
    level: list[Any] = [task.get_coro()]
    for _ in range(_SERVER_DEPTH_MAX):
        level = [one for holder in level for one in gc.get_referents(holder)]
        for one in level:
            if type(one).__name__ == _AIO_SERVER:
                return one
        level = [one for one in level if type(one).__module__.startswith(("grpc.", "_cython"))]
    return None


def beneath(thing: Any) -> tuple[Any, ...] | None:
    """What a channel or server, ours or gRPC's, stands before, and ends when it is closed; None for anything else."""
    kind = type(thing)
    if not isinstance(kind.__module__, str) or not kind.__module__.startswith(("grpc.", "stilltrue.")):
        return None
    for kinds, names in _STANDS_BEFORE:
        if issubclass(kind, kinds):
            found = (getattr(thing, name, None) for name in names)
            return tuple(one for one in found if one is not None)
    return None


# -- references --------------------------------------------------------------------------------------------------------


def bound_to(function: Any) -> tuple[Any, ...]:
    """What a callable carries: its object, its closure, its defaults. Not its module."""
    kind = type(function)
    if kind is MethodType:
        return (function.__self__, function.__func__)
    if kind is FunctionType:
        cells = tuple(_content(cell) for cell in function.__closure__ or ())
        return (*cells, *(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values())
    if issubclass(kind, ref):  # also those that WeakValueDictionary keeps
        return (ref.__call__(function),)
    if kind is CellType:
        return (_content(function),)
    own = getattr(function, "__self__", None) if kind is BuiltinFunctionType or _is_of_asyncio(kind) else None
    return () if own is None else (own,)


def is_function(thing: Any) -> bool:
    """Whether it is a function or method of Python's, or a partial one."""
    return type(thing) in (FunctionType, MethodType, functools.partial)


def called_in(callback: Any) -> tuple[CodeType | None, dict[str, Any], Any]:
    """The code that a callback runs, its globals and its object; (None, {}, None) for what is compiled."""
    if type(callback) is functools.partial:
        callback = callback.func
    owner = None
    if type(callback) is MethodType:
        owner, callback = callback.__self__, callback.__func__
    if type(callback) is not FunctionType:
        owner, callback = (
            callback,
            next((one.__dict__["__call__"] for one in type(callback).__mro__ if "__call__" in one.__dict__), None),
        )
    if type(callback) is not FunctionType:
        return None, {}, None
    return callback.__code__, callback.__globals__, owner


def name_of(callback: Any) -> str:
    """What to call a callback."""
    code, _, _ = called_in(callback)
    if code is not None:
        return qualname_of(code)
    plain = type(callback) is BuiltinFunctionType or _is_of_asyncio(type(callback))
    return str(callback.__qualname__) if plain and hasattr(callback, "__qualname__") else type(callback).__qualname__


def qualname_of(code: CodeType) -> str:
    """The qualified name of a code; Python 3.10 keeps only the plain one."""
    return str(getattr(code, "co_qualname", code.co_name))


def _is_of_asyncio(kind: type) -> bool:
    return kind.__module__ == "_asyncio"


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # an empty cell
        return None


def names_in(coroutine: Any) -> list[Any]:
    """What a suspended coroutine or generator holds: its variables, and what it is in the middle of (``with`` blocks)."""
    code = code_of(coroutine)
    return [one for one in gc.get_referents(coroutine) if not _is_own(one, code)]


def _is_own(one: Any, code: CodeType | None) -> bool:
    """Whether it is part of what a coroutine is, not of what it holds."""
    kind = type(one)
    return kind in (CodeType, str, FrameType) or (kind is FunctionType and one.__code__ is code)


def code_of(coroutine: Any) -> CodeType | None:
    """The code of a coroutine, generator or asynchronous generator; None for compiled ones."""
    for name in ("cr_code", "gi_code", "ag_code"):
        code = getattr(coroutine, name, None)
        if isinstance(code, CodeType):
            return code
    return None
