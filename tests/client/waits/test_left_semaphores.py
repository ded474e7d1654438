"""A thread that waits for a semaphore of multiprocessing whose holder's process has ended waits for an ended holder."""

from __future__ import annotations

import ctypes
import importlib
import multiprocessing
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from stilltrue.model import has_ended
from stilltrue.protocol.report import LocalWait, Report, ResourceTarget
from stilltrue.runtime.introspection.linux import child_processes
from stilltrue.runtime.introspection.linux.child_processes import process_at
from stilltrue.runtime.waits.databases import source_search
from stilltrue.runtime.waits.databases.source_search import Mentions
from stilltrue.runtime.waits.holders import own_releases
from stilltrue.runtime.waits.resolvers.shared_locks import semaphore_of
from stilltrue.runtime.waits.semaphores import kernel, left, own
from tests.client.look.worlds import look_at, of, report_of
from tests.client.waits.conftest import PATIENCE_SECONDS, Front

pytestmark = [
    pytest.mark.skipif(not Path("/proc/self/syscall").exists(), reason="the system does not show system calls"),
    pytest.mark.filterwarnings("ignore:This process:DeprecationWarning"),
]
SPAWN: Any = multiprocessing.get_context("spawn")
FORK: Any = multiprocessing.get_context("fork")
BRACKET = "    lock.acquire()\n    try:\n        repr(lock)\n    finally:\n        lock.release()\n"
NEVER = r"(?!)"
"""Matches nothing."""


def take_and_die(lock: Any) -> None:
    lock.acquire()
    os._exit(0)


def keep(lock: Any, taken: Connection, go: Connection, *, take: bool) -> None:
    if take:
        lock.acquire()
    taken.send(None)
    go.recv()


def take_later(lock: Any, taken: Connection, go: Connection) -> None:
    taken.send(None)
    lock.acquire()
    taken.send(None)
    go.recv()


def enter(lock: Any) -> None:
    with lock:
        pass


def acquire_in_time(lock: Any) -> None:
    lock.acquire(timeout=1000)


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    """Starts another process."""
    monkeypatch.syspath_prepend(Path(__file__).parents[3])
    started: list[Any] = []

    def start(context: Any, target: Any, *arguments: Any, **keywords: Any) -> Any:
        started.append(context.Process(target=target, args=arguments, kwargs=keywords, daemon=True))
        started[-1].start()
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.join(PATIENCE_SECONDS)


@pytest.fixture(autouse=True)
def afresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As in a process that has just begun, and whose program never mentions a release (this one does)."""
    monkeypatch.setattr(left._Known, "releases", Mentions(NEVER, own_only=True))
    left._Known.pid = 0  # an agent of another test may have looked a moment ago
    yield
    left._Known.pid = 0


def left_by_a_process(start: Callable[..., Any], context: Any, lock: Any) -> Any:
    holder = start(context, take_and_die, lock)
    holder.join(PATIENCE_SECONDS)
    assert lock._semlock._is_zero()
    return lock


def find_now() -> None:
    """Find the semaphores that nobody holds, as after some time."""
    for _ in range(3):
        left._Known.next_tick = left._Known.not_before = left._Known.again = left._Known.own._again = float("-inf")
        left.find_left_semaphores()
        time.sleep(0.01)


def report_when_found(front: Front) -> Report:
    front.report_when_still("waiter")
    find_now()
    return report_of(front.agent)


def wait_of(report: Report) -> LocalWait | None:
    """The waiter's wait for the holders in all processes."""
    found = [one for one in report.waits if one.waiter == "front/thread:waiter" and "holder of" in one.among[0].resource]  # type: ignore[union-attr]
    return found[0] if found else None


def ended_in(report: Report) -> list[tuple[str, str]]:
    return [(hold.party, hold.resource) for hold in report.holds if has_ended(hold.party)]


def release(lock: Any) -> None:
    """Release it for the process that has ended, which no process can do to an ``RLock`` otherwise."""
    assert ctypes.CDLL(None).sem_post(ctypes.c_void_p(lock._semlock.handle)) == 0


def finish(front: Front, lock: Any) -> None:
    release(lock)
    front.let_go()


@pytest.mark.parametrize("context", [SPAWN, FORK])
@pytest.mark.parametrize("kind", ["Lock", "RLock", "Semaphore", "BoundedSemaphore"])
def test_who_waits_for_a_semaphore_of_an_ended_process_waits_for_an_ended_holder(
    front: Front, start: Callable[..., Any], context: Any, kind: str
) -> None:
    lock = left_by_a_process(start, context, getattr(context, kind)())
    waiter = front.start("waiter", enter, lock)
    report = report_when_found(front)
    ((party, resource),) = ended_in(report)
    assert party.startswith("front/ended:the holder of a lock of multiprocessing")
    assert wait_of(report).among == (ResourceTarget(resource=resource),)  # type: ignore[union-attr]
    look = look_at(front.agent, report)
    assert of(look, party).unchanged
    assert of(look, "front/thread:waiter").unchanged
    finish(front, lock)
    assert not waiter.is_alive()
    assert not of(look_at(front.agent, report), party).unchanged


def test_each_process_that_has_the_semaphore_must_say_so(front: Front, start: Callable[..., Any]) -> None:
    lock, (here, there), (there_again, go) = SPAWN.Lock(), SPAWN.Pipe(), SPAWN.Pipe()
    other = start(SPAWN, keep, lock, there, there_again, take=True)
    here.recv()
    front.start("waiter", enter, lock)
    report = report_when_found(front)
    ((_, resource),) = ended_in(report)
    among = wait_of(report).among  # type: ignore[union-attr]
    assert len(among) == 2
    assert ResourceTarget(resource=resource) in among
    assert any(f"process {other.pid}:{process_at(other.pid).started}" in one.resource for one in among)  # type: ignore[union-attr]
    go.send(None)
    other.join(PATIENCE_SECONDS)
    find_now()
    assert wait_of(report_of(front.agent)).among == (ResourceTarget(resource=resource),)  # type: ignore[union-attr]
    finish(front, lock)


def test_a_process_that_holds_it_says_nothing(front: Front) -> None:
    lock = SPAWN.Lock()
    front.hold(hold_in_block, lock, front.get)
    front.start("waiter", enter, lock)
    assert not ended_in(report_when_found(front))
    front.let_go()


def test_a_process_that_was_forked_in_the_block_will_release_it(front: Front, start: Callable[..., Any]) -> None:
    lock = SPAWN.Lock()
    front.hold(hold_in_block, lock, front.get)
    give_back(lock)
    left_by_a_process(start, SPAWN, lock)  # now it is taken, this process has not acquired it, and is in its block
    front.start("waiter", enter, lock)
    assert not ended_in(report_when_found(front))
    assert left._Known.left()
    front.let_go()


def give_back(lock: Any) -> None:
    lock.release()


def hold_in_block(lock: Any, call: Callable[[bytes], Any]) -> None:
    with lock:
        call(b"")


def test_a_program_that_mentions_a_release_says_nothing_except_of_what_only_its_owner_releases(
    front: Front, start: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(left._Known, "releases", own_releases.mentions_of_releases(exits=True))
    locks = [left_by_a_process(start, SPAWN, make()) for make in (SPAWN.Lock, SPAWN.RLock)]
    for lock in locks:
        front.start("waiter", enter, lock)
    assert len(ended_in(report_when_found(front))) == 1
    assert left._Known.left().keys() == {semaphore_of(locks[1])}
    for lock in locks:
        release(lock)
    front.let_go()


def test_a_semaphore_that_is_passed_on_is_not_left(front: Front, start: Callable[..., Any]) -> None:
    """It is released between the cut and the look, and another process gets it: here, everything looks the same."""
    lock, (here, there), (there_again, go) = SPAWN.Lock(), SPAWN.Pipe(), SPAWN.Pipe()
    key = semaphore_of(lock)
    assert key is not None
    left_by_a_process(start, SPAWN, lock)
    start(SPAWN, take_later, lock, there, there_again)
    here.recv()
    end = time.monotonic() + PATIENCE_SECONDS
    while not kernel.sleepers_at(kernel.users_of((key,)))[key]:
        assert time.monotonic() < end
    front.start("waiter", enter, lock)
    report = report_when_found(front)
    ((party, _),) = ended_in(report)
    assert of(look_at(front.agent, report), party).unchanged
    release(lock)  # wakes the other process's thread, which waited first
    here.recv()
    look = look_at(front.agent, report)
    assert of(look, "front/thread:waiter").unchanged
    assert not of(look, party).unchanged
    go.send(None)
    finish(front, lock)


def test_a_wait_with_a_timeout_is_not_for_an_ended_holder(front: Front, start: Callable[..., Any]) -> None:
    lock = left_by_a_process(start, SPAWN, SPAWN.Lock())
    front.start("waiter", acquire_in_time, lock)
    report = report_when_found(front)
    assert ended_in(report)
    assert wait_of(report) is None
    finish(front, lock)


def test_nothing_is_known_if_a_process_cannot_be_read_or_a_thread_has_real_time_priority(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lock = SPAWN.Lock()
    key = semaphore_of(lock)
    assert key is not None
    assert kernel.users_of((key,))[key].keys() == {process_at(os.getpid()).key}  # type: ignore[union-attr]
    monkeypatch.setattr(kernel, "_ORDINARY", frozenset({"1"}))
    assert not kernel.users_of((key,))
    monkeypatch.undo()

    def refuse(_: str) -> dict[kernel.Semaphore, tuple[int, int]]:
        raise PermissionError

    monkeypatch.setattr(kernel, "mapped_in", refuse)
    assert not kernel.users_of((key,))
    monkeypatch.setattr(child_processes, "_stat_of", lambda _: ("", []))
    assert not kernel.users_of((key,))
    monkeypatch.undo()
    assert kernel.users_of((key,))
    monkeypatch.setattr(kernel, "shows_all_processes", lambda: False)
    assert not kernel.users_of((key,))


KNOWS_WITHOUT = """
import multiprocessing, os, sys
from stilltrue.runtime.waits.resolvers.shared_locks import semaphore_of
from stilltrue.runtime.waits.semaphores import kernel
mapped_in = kernel.mapped_in
def refuse(process):
    if process == sys.argv[1]:
        raise PermissionError
    return mapped_in(process)
kernel.mapped_in = refuse
lock = multiprocessing.get_context("spawn").Lock()
key = semaphore_of(lock)
print(list(kernel.users_of((key,))) == [key])
"""


@pytest.mark.parametrize(("through", "known"), [((), False), (("sh", "-c", '"$@"; exit $?', "sh"), True)])
def test_an_ancestor_that_cannot_be_read_matters_only_if_no_other_program_is_between(
    through: tuple[str, ...], known: bool
) -> None:
    command = [*through, sys.executable, "-c", KNOWS_WITHOUT, str(os.getpid())]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == f"{known}\n"


def test_nothing_is_known_if_the_system_calls_of_another_process_cannot_be_read(
    start: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where processes may trace only their descendants: a thread there may have been blocked for longest."""
    lock, (here, there), (there_again, _go) = SPAWN.Lock(), SPAWN.Pipe(), SPAWN.Pipe()
    key = semaphore_of(lock)
    assert key is not None
    other = start(SPAWN, keep, lock, there, there_again, take=False)
    here.recv()
    assert len(kernel.users_of((key,))[key]) == 2
    text_of = kernel._text_of

    def refuse(path: str) -> str:
        if path.startswith(f"/proc/{other.pid}/") and path.endswith("/syscall"):
            raise PermissionError
        return text_of(path)

    monkeypatch.setattr(kernel, "_text_of", refuse)
    assert not kernel.users_of((key,))


def test_threads_that_are_blocked_are_those_at_its_own_address() -> None:
    lock, other = SPAWN.Lock(), SPAWN.Lock()
    key, other_key = semaphore_of(lock), semaphore_of(other)
    assert key is not None
    assert other_key is not None
    with lock, other:
        thread = threading.Thread(target=enter, args=(lock,), daemon=True)
        thread.start()
        end = time.monotonic() + PATIENCE_SECONDS
        while not (found := kernel.sleepers_at(kernel.users_of((key, other_key)))).get(key):
            assert time.monotonic() < end
        (sleeper,) = found[key]
        assert (sleeper.process, sleeper.thread) == (os.getpid(), thread.native_id)
        assert not found[other_key]
        assert sleeper.sleeps()
    thread.join(PATIENCE_SECONDS)
    assert not sleeper.sleeps()


def tell_count(lock: Any, answer: Connection) -> None:
    semaphores = own.OwnSemaphores()
    semaphores.find()
    answer.send([len(semaphores.objects.get(semaphore_of(lock), ())), len(own.registered_semaphores())])  # type: ignore[arg-type]


def test_a_started_process_finds_the_objects_that_it_was_given(start: Callable[..., Any]) -> None:
    """multiprocessing does not register them there."""
    lock, (here, there) = SPAWN.Lock(), SPAWN.Pipe()
    start(SPAWN, tell_count, lock, there)
    assert here.poll(PATIENCE_SECONDS)
    assert here.recv() == [1, 0]


@pytest.mark.parametrize(
    ("body", "only_its_own"),
    [
        (BRACKET, True),
        ("    lock.release()\n", False),
        ("    if lock.acquire(timeout=1):\n        lock.release()\n", True),
        ("    lock.acquire()\n    print()\n    lock.release()\n", True),
        ("    lock.acquire()\n    if lock.done():\n        lock.release()\n    lock.release()\n", False),
        ("    lock.acquire(timeout=1)\n    lock.release()\n", False),
        ("    def later():\n        lock.release()\n    return later\n", False),
        ("    return lock.release\n", False),
        (f"{BRACKET}if __name__ == '__main__':\n    run.release()\n", False),
        (f"{BRACKET}def undo(lock):\n    getattr(lock, 'release')()\n", False),
        (f"{BRACKET}def undo(lock):\n    lock.__exit__(None, None, None)\n", False),
    ],
)
def test_a_file_may_release_only_what_it_acquires(
    body: str, only_its_own: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"releasing_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(f"def run(lock):\n{body}")
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module(name)
    assert module.__file__ is not None
    monkeypatch.setattr(source_search, "items_of", lambda _: [(name, module)])
    found = own_releases.mentions_of_releases(exits=True)
    assert found.search()
    assert bool(found.found) != only_its_own
    monkeypatch.delitem(sys.modules, name)
