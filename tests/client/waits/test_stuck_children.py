"""Who waits for a child whose threads all wait for ever, in locks of their own, waits for itself; the child needs no agent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from stilltrue import Agent
from stilltrue.protocol.report import Report, ResourceTarget
from stilltrue.runtime.introspection.linux import child_processes, child_threads
from stilltrue.runtime.waits import stuck_children
from stilltrue.runtime.waits.pipes import known_stuck, process_trees
from stilltrue.runtime.waits.stuck_children import is_stuck
from tests.client.look.worlds import look_at, report_of
from tests.client.waits.children import SECONDS_MAX, WAITER, waiting

pytestmark = [
    pytest.mark.usefixtures("only_this_file_counts"),
    pytest.mark.skipif(not Path("/proc/self/timers").exists(), reason="the system does not show timers"),
]
ATTEMPTS = 6
TWICE = "import threading; lock = threading.Lock(); lock.acquire(); print(flush=True); lock.acquire()"
CROSSED = """
import threading, time
a, b = threading.Lock(), threading.Lock()
def lock_both(one, other):
    with one:
        time.sleep(0.1)
        with other: pass
threads = [threading.Thread(target=lock_both, args=those) for those in ((a, b), (b, a))]
[one.start() for one in threads]
print(flush=True)
[one.join() for one in threads]
"""
OF_OWN_CHILD = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-ISc", "import sys; sys.stdout.write('x' * 1_000_000)"], stdout=subprocess.PIPE)
print(flush=True)
child.wait()
"""
OF_PROCESSES = "import multiprocessing; lock = multiprocessing.Lock(); lock.acquire(); print(flush=True); lock.acquire()"
SHARED = f"""
import multiprocessing, os, time
lock = multiprocessing.Lock()
if not os.fork():
    if not os.fork():
        time.sleep(600)
    os._exit(0)
os.wait()
{OF_PROCESSES.replace("multiprocessing.Lock()", "lock")}
"""
"""A process that has lost its parent has the lock, too."""
CORE = "import threading, time; threading.Thread(target=lambda: (name(), time.sleep(600))).start()"
GOING_ON = {
    "timeout": "import threading; print(flush=True); threading.Event().wait(600)",
    "another thread": f"import threading, time; threading.Thread(target=time.sleep, args=(600,)).start(); {TWICE}",
    "reads": "import sys; print(flush=True); sys.stdin.read()",
    "alarm": f"import signal; signal.signal(signal.SIGALRM, lambda *_: 1 / 0); {TWICE}",
    "a child that ends": f"import subprocess; subprocess.Popen(['sleep', '600']); {TWICE}",
}


@contextmanager
def child(code: str) -> Iterator[int]:
    command = [sys.executable, "-ISc", code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True) as process:
        assert process.stdout is not None
        process.stdout.read(1)
        try:
            yield process.pid
        finally:
            os.killpg(process.pid, signal.SIGKILL)


def is_stuck_soon(pid: int, seconds: float) -> bool:
    end = time.monotonic() + seconds
    while not is_stuck(pid):
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


@pytest.mark.parametrize(
    "code", [TWICE, CROSSED, OF_OWN_CHILD, OF_PROCESSES], ids=["twice", "crossed", "own child", "semaphore"]
)
def test_a_process_whose_threads_all_wait_for_its_own_locks_is_stuck(code: str) -> None:
    with child(code) as pid:
        assert is_stuck_soon(pid, SECONDS_MAX)


@pytest.mark.parametrize("code", GOING_ON.values(), ids=GOING_ON)
def test_any_other_is_not(code: str) -> None:
    with child(code) as pid:
        assert not is_stuck_soon(pid, 0.5)


def test_one_with_a_terminal_of_its_own_may_get_its_signals_from_there() -> None:
    """Whoever has the other side of the terminal writes Ctrl-C there, or closes it."""
    other_side, terminal = os.openpty()
    opens = f"import os; os.open({os.ttyname(terminal)!r}, os.O_RDWR)"  # the first of a session becomes its terminal
    with child(f"{opens}; {TWICE}") as pid:
        assert child_processes.terminal_of(pid) != child_processes.terminal_of(os.getpid())
        assert not is_stuck_soon(pid, 0.5)
        assert process_trees.tree_of(pid) is not None
    os.close(terminal)
    os.close(other_side)


def test_a_lock_that_another_process_may_release_is_not_its_own() -> None:
    with child(SHARED) as pid:
        end = time.monotonic() + SECONDS_MAX
        while (tree := process_trees.tree_of(pid)) is None:
            assert time.monotonic() < end
        assert not tree.is_closed()


@pytest.mark.parametrize("is_copy", [True, False])
def test_the_threads_of_grpcs_core_count_unless_the_process_is_a_copy_of_this_one(
    monkeypatch: pytest.MonkeyPatch, is_copy: bool
) -> None:
    """They are left running in a copy, and do nothing; in another program they may serve all of its requests."""
    monkeypatch.setattr(process_trees, "is_forked", lambda _: is_copy)
    named = f"import ctypes; name = lambda: ctypes.CDLL(None).prctl(15, b'event_engine'); {CORE}; {TWICE}"
    with child(named) as pid:
        assert is_stuck_soon(pid, SECONDS_MAX if is_copy else 0.5) == is_copy


def test_a_program_that_this_one_has_started_is_no_copy() -> None:
    with child(TWICE) as pid:
        assert not child_threads.is_forked(pid)
    assert child_threads.is_forked(os.getpid())


def holds(agent: Agent) -> tuple[Report, bool]:
    """A cut, and whether the waiter holds what it waits for."""
    report_of(agent)
    agent._observer.searchers._stuck_children.search()
    report = report_of(agent)
    awaited = [one.resource for wait in report.waits for one in wait.among if isinstance(one, ResourceTarget)]
    return report, any(one.party == WAITER and one.resource in awaited for one in report.holds)


def test_who_waits_for_a_stuck_child_waits_for_itself(alone: Callable[..., Agent]) -> None:
    agent, end = alone("here"), time.monotonic() + SECONDS_MAX
    with waiting(CROSSED):
        while not (found := holds(agent))[1]:
            assert time.monotonic() < end
            time.sleep(stuck_children.AGAIN_SECONDS)
        (seen,) = (one for one in look_at(agent, found[0]).parties if one.party == WAITER)
        assert (seen.unchanged, seen.ways_out, seen.doubt, seen.deadline) == (True, (), "", None)


def test_a_member_reports_for_itself(alone: Callable[..., Agent], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_stuck, "joined_at", lambda _: 1.0)
    monkeypatch.setattr(stuck_children, "AGAIN_SECONDS", 0.0)
    agent = alone("here")
    with waiting(CROSSED):
        for _ in range(ATTEMPTS):
            time.sleep(0.1)
            assert not holds(agent)[1]


def test_a_watchdog_that_knows_the_child_may_end_it(alone: Callable[..., Agent], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stuck_children, "AGAIN_SECONDS", 0.0)
    agent = alone("here")
    with waiting(CROSSED) as pid, subprocess.Popen(["sh", "-c", "sleep 600; kill $0", str(pid)], start_new_session=True) as dog:
        try:
            end = time.monotonic() + SECONDS_MAX
            while process_trees.tree_of(pid) is None:
                assert time.monotonic() < end
            for _ in range(ATTEMPTS):
                time.sleep(0.1)
                assert not holds(agent)[1]
        finally:
            os.killpg(dog.pid, signal.SIGKILL)


def test_a_child_that_goes_on_holds_nothing(alone: Callable[..., Agent], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stuck_children, "AGAIN_SECONDS", 0.0)
    agent = alone("here")
    with waiting(GOING_ON["timeout"]):
        for _ in range(ATTEMPTS):
            time.sleep(0.1)
            assert not holds(agent)[1]
