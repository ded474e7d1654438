"""Hooks for the fork and the end of the process, which do not keep the agent alive."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from weakref import WeakMethod

from stilltrue.runtime.at_exit import at_exit as run_last

LAST = -100
"""Priority of a finalizer that runs after the application's own, which may still make calls, and after that of a queue of
``multiprocessing`` (-5), which waits until all items are written."""
ENGINE_ENDS_SAFELY_SINCE = (1, 66)
"""The oldest version of grpcio that is known to fork safely while an event engine of its core ends."""
ENGINE_SECONDS_MAX = 0.05
"""Longest delay of a fork until the threads of the event engine have ended or sleep."""
ENGINE_LOOK_SECONDS = 0.001
_ENGINE = ("event_engine", "lifeguard")
"""Names of the threads of an event engine of gRPC's core."""
_TASKS = Path("/proc/self/task")


def register(
    *,
    at_exit: Callable[[], None],
    before_fork: Callable[[], None],
    after_fork_in_parent: Callable[[], None],
    after_fork_in_child: Callable[[], None],
) -> None:
    """Call these methods of one object for as long as the object lives."""
    run_last(_weakly(at_exit))
    os.register_at_fork(
        before=_weakly(before_fork), after_in_parent=_weakly(after_fork_in_parent), after_in_child=_weakly(after_fork_in_child)
    )


def await_engine() -> None:
    """Before a fork, after the end of a session: wait until gRPC's event engine has ended, if this grpcio needs that.

    The engine ends with the last channel, on threads of its own. Before 1.66, gRPC's fork handlers wait forever for an engine
    that is just ending, or corrupt a mutex of it. An engine that lives on, because the application has channels or servers,
    sleeps. A hang becomes rare, not impossible. Takes at most ``ENGINE_SECONDS_MAX``; about 3 ms if nothing else runs.
    """
    numbers = re.match(r"(\d+)\.(\d+)", str(getattr(sys.modules.get("grpc"), "__version__", "")))
    if numbers is None or (int(numbers[1]), int(numbers[2])) >= ENGINE_ENDS_SAFELY_SINCE:
        return
    deadline, before = time.monotonic() + ENGINE_SECONDS_MAX, None
    while time.monotonic() < deadline:
        states = _engine_states()
        if states is not None and states == before and set(states.values()) <= {"S"}:
            return
        before = states
        time.sleep(ENGINE_LOOK_SECONDS)


def _engine_states() -> dict[str, str] | None:
    """The states (``R`` running, ``S`` asleep) of the threads of event engines by thread id; None if unknown."""
    states = {}
    try:
        for task in _TASKS.iterdir():
            try:
                name, _, fields = (task / "stat").read_text("ascii", "replace").partition("(")[2].rpartition(")")
            except OSError:  # it has ended
                continue
            if name in _ENGINE:
                states[task.name] = fields.split()[0]
    except OSError:
        return None
    return states


def say_goodbye_in_children(close: Callable[[], None]) -> None:
    """Call ``close`` when this process ends, if ``multiprocessing`` or ``billiard`` started it: it never runs ``atexit``.

    Otherwise each worker of a pool would stay a missing member until it is forgotten. Imports nothing.
    """
    process, util = sys.modules.get("multiprocessing.process"), sys.modules.get("multiprocessing.util")
    if process is not None and util is not None and process.parent_process() is not None:
        util.Finalize(None, close, exitpriority=LAST)
    worker = _worker_of_billiard()
    if worker is not None:
        worker.on_exit = _after(worker.on_exit, close)


def _worker_of_billiard() -> Any:
    """What this process runs as a worker of a pool of billiard, Celery's fork of multiprocessing; None in any other process.

    Such a worker calls its ``on_exit`` and then ``os._exit()``; finalizers do not run.
    """
    process, pool = sys.modules.get("billiard.process"), sys.modules.get("billiard.pool")
    worker = None if process is None or pool is None else getattr(process.current_process(), "_target", None)
    return worker if hasattr(worker, "on_exit") and isinstance(worker, pool.Worker) else None  # type: ignore[union-attr]


def _after(first: Callable[[int, int], object] | None, close: Callable[[], None]) -> Callable[[int, int], None]:
    """Calls ``first``, if there is one, and then ``close``."""

    def call(pid: int, exit_code: int) -> None:
        try:
            if first is not None:
                first(pid, exit_code)
        finally:
            close()

    return call


def _weakly(method: Callable[[], None]) -> Callable[[], None]:
    """A function that calls ``method`` if its object is alive."""
    weak = WeakMethod(method)

    def call() -> None:
        known = weak()
        if known is not None:
            known()

    return call
