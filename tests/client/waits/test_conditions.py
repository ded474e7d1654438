"""A thread at an event or condition of multiprocessing waits for the work of all processes that may notify it."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any

import pytest

from stilltrue.protocol.report import ResourceTarget
from stilltrue.runtime.introspection.frames import frames_of_threads
from stilltrue.runtime.introspection.linux.child_processes import process_at
from stilltrue.runtime.waits.resolvers.processes import named
from stilltrue.runtime.waits.semaphores import conditions
from stilltrue.runtime.waits.semaphores.kernel import Semaphore
from stilltrue.runtime.waits.wait import CallStack

pytestmark = pytest.mark.skipif(not Path("/proc/self/syscall").exists(), reason="the system does not show system calls")
SPAWN: Any = multiprocessing.get_context("spawn")
PATIENCE_SECONDS = 20.0
_READS = "import sys; sys.stdin.read()"


def start(target: Callable[..., object], *arguments: Any) -> threading.Thread:
    thread = threading.Thread(target=target, args=arguments, daemon=True)
    thread.start()
    return thread


def awaited_by(thread: threading.Thread) -> Semaphore | None:
    frames = frames_of_threads().get(thread.ident or 0)
    return conditions._awaited_in(thread.ident or 0, frames[0]) if frames else None


def awaited_in_time(thread: threading.Thread) -> Semaphore:
    until = time.monotonic() + PATIENCE_SECONDS
    while (found := awaited_by(thread)) is None:
        assert time.monotonic() < until
    return found


def stands(thread: threading.Thread, name: str) -> bool:
    """Whether a thread is blocked in a function of this name."""
    frames = frames_of_threads().get(thread.ident or 0)
    told = Path(f"/proc/self/task/{thread.native_id}/syscall").read_text()
    return frames is not None and frames[0].f_code.co_name == name and not told.startswith("running")


def wait_until(done: Callable[[], bool]) -> None:
    until = time.monotonic() + PATIENCE_SECONDS
    while not done():
        assert time.monotonic() < until
        time.sleep(0.01)


def test_a_thread_waits_at_the_semaphore_of_its_condition() -> None:
    event, other = SPAWN.Event(), SPAWN.Event()
    waiter, elsewhere = start(event.wait), start(other.wait)
    key = awaited_in_time(waiter)
    assert key != awaited_in_time(elsewhere)
    event.set()
    other.set()
    waiter.join(PATIENCE_SECONDS)
    assert awaited_by(waiter) is None


def test_a_wait_with_a_timeout_does_not_count() -> None:
    event = SPAWN.Event()
    waiter = start(event.wait, PATIENCE_SECONDS)
    wait_until(lambda: stands(waiter, "wait"))
    assert awaited_by(waiter) is None
    event.set()
    waiter.join(PATIENCE_SECONDS)


def test_a_thread_that_was_notified_and_wants_the_lock_again_does_not_wait_for_a_notification() -> None:
    condition = SPAWN.Condition(SPAWN.Lock())

    def waits() -> None:
        with condition:
            condition.wait()

    waiter = start(waits)
    awaited_in_time(waiter)
    with condition:
        condition._wait_semaphore.release()  # what notify() does, which then waits until the waiter has woken
        wait_until(lambda: condition._woken_count._semlock._get_value() == 1 and stands(waiter, "wait"))
        assert awaited_by(waiter) is None
    waiter.join(PATIENCE_SECONDS)


def test_children_count_and_the_resource_tracker_does_not() -> None:
    event = SPAWN.Event()  # starts the tracker
    child = subprocess.Popen([sys.executable, "-ISc", _READS], stdin=subprocess.PIPE)
    try:
        found: frozenset[int] = conditions._with_descendants([os.getpid()]) or frozenset()
        assert {os.getpid(), child.pid} <= found
        assert resource_tracker._resource_tracker._pid not in found  # type: ignore[attr-defined]
    finally:
        child.communicate()
    assert child.pid not in (conditions._with_descendants([os.getpid(), child.pid]) or ())
    del event


def targets(*kinds_and_pids: tuple[str, int]) -> dict[ResourceTarget, int]:
    found: dict[ResourceTarget, int] = {}
    for kind, pid in kinds_and_pids:
        process = process_at(pid)
        assert process is not None
        found[ResourceTarget(resource=str(named(kind, process)))] = pid
    return found


def test_the_others_must_be_about_to_wake_somebody_except_at_a_barrier() -> None:
    own, parent = os.getpid(), os.getppid()
    quiet, waking = conditions._QUIET, conditions._ABOUT_TO_WAKE
    assert conditions._enders([own, parent], False) == targets((quiet, own), (waking, parent))
    assert conditions._enders([own, parent], True) == targets((quiet, own), (quiet, parent))
    assert conditions._enders([own], True) is None
    assert conditions._enders(None, True) is None


def _sets(event: threading.Event, go: threading.Event) -> None:
    go.wait()
    event.set()


def _prints(event: threading.Event, go: threading.Event) -> None:
    go.wait()
    print(event)


def _sets_if_interrupted(event: threading.Event, go: threading.Event) -> None:
    try:
        go.wait()
    except KeyboardInterrupt:
        event.set()


@pytest.mark.parametrize(("does", "wakes"), [(_sets, True), (_prints, False), (_sets_if_interrupted, False)])
def test_a_process_is_about_to_wake_somebody_if_the_rest_of_a_threads_code_does(
    monkeypatch: pytest.MonkeyPatch, does: Callable[..., None], wakes: bool
) -> None:
    monkeypatch.setattr(signal, "getsignal", lambda _: signal.SIG_DFL)  # of the tests
    own = process_at(os.getpid())
    assert own is not None
    go = threading.Event()
    thread = start(does, threading.Event(), go)
    wait_until(lambda: stands(thread, "wait"))
    frames = frames_of_threads()[thread.ident or 0]
    found = conditions.kinds_of_work(own, [CallStack(tuple(frames), thread.ident or 0)])
    assert (named(conditions._ABOUT_TO_WAKE, own) in found) is wakes
    assert named(conditions._QUIET, own) in found
    monkeypatch.setattr(signal, "getsignal", lambda _: _prints)
    assert conditions.kinds_of_work(own, []) == []
    go.set()
    thread.join()
