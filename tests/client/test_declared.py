"""Declared waits, waits at the agent's own locks, and steps in which facts change with their message."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import queue
import sys
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest

from stilltrue import Agent
from stilltrue.model import Activity
from stilltrue.protocol.report import PartyTarget, ResourceTarget
from tests.client.cuts import Alone, Snapshots, started


@pytest.fixture
def agent(alone: Alone) -> Agent:
    return alone("orders")


@pytest.fixture
def report(agent: Agent) -> Snapshots:
    return Snapshots(agent)


def until(found: Callable[[], Any]) -> Any:
    end = time.monotonic() + 10
    while not (result := found()):
        assert time.monotonic() < end
        time.sleep(0.002)
    return result


def stands_in(thread: threading.Thread, function: str) -> bool:
    """Whether a thread is inside a function of that name."""
    frame = sys._current_frames().get(thread.ident or 0)
    while frame is not None and frame.f_code.co_name != function:
        frame = frame.f_back
    return frame is not None


@pytest.mark.parametrize("kind", ["Lock", "RLock"])
def test_a_lock_has_a_holder_and_waiters(agent: Agent, report: Snapshots, kind: str) -> None:
    lock = getattr(agent, kind)("ledger")
    with lock:
        (hold,) = report().holds
        assert (hold.party, hold.resource, hold.capacity) == ("orders/thread:MainThread", "orders/lock:ledger", 1)
        held, over = threading.Event(), threading.Event()
        waiter = started(lambda: _hold(lock, held, over), "second")
        (wait,) = until(lambda: report().waits)
        assert (wait.waiter, wait.among) == ("orders/thread:second", (ResourceTarget(resource="orders/lock:ledger"),))
        assert not wait.uncoloured
    held.wait()
    (hold,) = report().holds
    assert (hold.party, report().waits) == ("orders/thread:second", ())
    over.set()
    waiter.join()
    assert report().holds == ()


def _hold(lock: Any, held: threading.Event, over: threading.Event) -> None:
    with lock:
        held.set()
        over.wait()


def test_a_permit_after_a_bare_acquire_has_no_known_holder(agent: Agent, report: Snapshots) -> None:
    lock, semaphore = agent.Lock(), agent.Semaphore(2)
    for one in (lock, semaphore):
        one.acquire()
    assert report().holds == ()
    with semaphore:
        assert len(report().holds) == 1
        started(semaphore.release, "another").join()  # the share taken without a block, not that of the block
        assert len(report().holds) == 1
    lock.release()
    assert report().holds == ()


def test_an_explicitly_entered_lock_may_be_exited_by_any_party(agent: Agent, report: Snapshots) -> None:
    lock, semaphore = agent.Lock(), agent.Semaphore(1)
    for one in (lock, semaphore):
        one.__enter__()
    with contextlib.ExitStack() as stack:
        stack.enter_context(agent.Lock())
        handed_on = stack.pop_all()
    assert report().holds == ()
    started(handed_on.close, "another").join()
    started(lambda: lock.__exit__(None, None, None), "another").join()
    started(lambda: semaphore.__exit__(None, None, None), "another").join()

    class Guard:
        """Enters the lock when it is entered."""

        def __enter__(self) -> bool:
            return lock.__enter__()

        def __exit__(self, *exception: object) -> None:
            lock.__exit__(*exception)

    condition: Any = threading.Condition(lock)  # type: ignore[arg-type]  # a lock by what it does
    for block in (lock, semaphore, Guard(), condition):
        with block:
            assert len(report().holds) == 1
        assert report().holds == ()


async def test_a_lock_explicitly_entered_by_a_task_may_be_exited_by_any_party(agent: Agent, report: Snapshots) -> None:
    for one in (agent.aio.Lock(), agent.aio.Semaphore(1)):
        await one.__aenter__()
        assert report().holds == ()
        await one.__aexit__()
        async with one:
            assert len(report().holds) == 1
        assert report().holds == ()


def test_the_application_may_declare_that_owners_release(agent: Agent, report: Snapshots) -> None:
    for lock in (agent.Lock(owner_releases=True), agent.Semaphore(1, owner_releases=True), agent.RLock()):
        lock.acquire()
        assert len(report().holds) == 1
        lock.release()
        assert report().holds == ()


@pytest.mark.parametrize("kind", ["Lock", "RLock"])
def test_a_lock_has_locked_as_conditions_need_from_python_3_14_on(agent: Agent, kind: str) -> None:
    lock = getattr(agent, kind)()
    assert not lock.locked()
    with lock:
        assert lock.locked()
    assert not lock.locked()


@pytest.mark.parametrize("kind", ["Lock", "RLock"])
def test_a_condition_releases_its_lock_while_it_waits(agent: Agent, report: Snapshots, kind: str) -> None:
    lock = getattr(agent, kind)("guard")
    condition, woken, over = threading.Condition(lock), threading.Event(), threading.Event()

    def wait() -> None:
        with lock if kind == "RLock" else nullcontext(), condition:  # twice, if reentrant
            waiting.set()
            assert condition.wait(20)
            woken.set()
            over.wait()

    waiting = threading.Event()
    waiter = started(wait, "waiter")
    waiting.wait()
    with condition:  # it can be acquired only once the other waits
        assert [hold.party for hold in report().holds] == ["orders/thread:MainThread"]
        condition.notify()
    woken.wait()
    assert [hold.party for hold in report().holds] == ["orders/thread:waiter"]
    over.set()
    waiter.join()
    assert report().holds == ()


def test_ended_threads_and_dropped_locks_are_forgotten(agent: Agent) -> None:
    for _ in range(50):
        started(lambda: agent.Lock("session").acquire(), "worker").join()
    gc.collect()
    assert [name for name, _ in agent.parties.threads() if "worker" in name] == []
    assert agent.parties.name_resource("lock", "session", agent) == "orders/lock:session"


def test_a_lock_behaves_like_threadings(agent: Agent, report: Snapshots) -> None:
    lock = agent.Lock()
    assert lock.acquire()
    assert lock.locked()
    assert not lock.acquire(blocking=False)
    assert not lock.acquire(timeout=0.01)
    with pytest.raises(ValueError, match="timeout"):
        lock.acquire(False, 1)
    lock.release()
    with pytest.raises(RuntimeError):
        lock.release()
    condition = threading.Condition(lock)  # type: ignore[arg-type]  # it is one by what it can do
    with condition:
        condition.notify_all()
    recursive = agent.RLock()
    with recursive, recursive:
        assert len(report().holds) == 1
    with pytest.raises(RuntimeError):
        recursive.release()
    assert (report().holds, report().waits) == ((), ())


def test_a_timed_wait_for_a_lock_ends_by_itself(agent: Agent, report: Snapshots) -> None:
    lock = agent.Lock()
    with lock:
        waiter = started(lambda: lock.acquire(timeout=60), "second")
        (wait,) = until(lambda: report().waits)
        assert wait.deadline is not None
    waiter.join()


def test_a_lock_released_by_another_thread_is_a_signal(agent: Agent, report: Snapshots) -> None:
    lock = agent.Lock(owner_releases=True)
    started(lock.acquire, "taker").join()
    lock.release()
    assert report().holds == ()
    lock.acquire()
    assert (report().holds, lock._shares.begin_wait()) == ((), None)
    lock.release()


def test_a_semaphore_has_several_holders_until_it_is_used_as_a_signal(agent: Agent, report: Snapshots) -> None:
    semaphore = agent.Semaphore(2, "slots")
    held, over = threading.Event(), threading.Event()
    with semaphore:
        with semaphore:
            assert [(hold.resource, hold.capacity) for hold in report().holds] == [("orders/semaphore:slots", 2)] * 2
            waiter = started(lambda: _hold(semaphore, held, over), "third")
            until(lambda: report().waits)
        held.wait()
        assert {hold.party for hold in report().holds} == {"orders/thread:MainThread", "orders/thread:third"}
        started(semaphore.release, "stranger").join()
        assert (report().holds, semaphore._shares.begin_wait()) == ((), None)
        over.set()
        waiter.join()


def test_a_semaphore_created_as_a_signal_has_no_waits(agent: Agent, report: Snapshots) -> None:
    semaphore = agent.Semaphore(0)
    waiter = started(semaphore.acquire, "waiter")
    until(lambda: stands_in(waiter, "wait"))
    assert report().waits == ()
    semaphore.release()
    waiter.join()


def test_a_queue_is_waited_for_only_with_declared_producers(agent: Agent, report: Snapshots) -> None:
    plain, known = agent.Queue(), agent.Queue(1, "work", producers=["orders/thread:pump"])
    quiet = started(plain.get, "quiet")
    getter = started(known.get, "getter")
    (wait,) = until(lambda: report().waits)
    assert (wait.waiter, wait.among) == ("orders/thread:getter", (PartyTarget(party="orders/thread:pump"),))  # type: ignore[arg-type]
    known.put(1)
    assert report().waits == ()  # whether the getter has run yet or not
    getter.join()
    plain.put(1)
    quiet.join()
    known.put_nowait(1)
    with pytest.raises(queue.Full):
        known.put(1, block=False)
    assert known.get_nowait() == 1
    with pytest.raises(queue.Empty):
        known.get(timeout=0.01)
    assert known.qsize() == 0


async def test_locks_of_tasks(agent: Agent, report: Snapshots) -> None:
    lock, semaphore = agent.aio.Lock("ledger"), agent.aio.Semaphore(1)
    work = agent.aio.Queue(producers=["orders/task:pump"])
    async with lock, semaphore:
        assert len(report().holds) == 2
        tasks = [asyncio.create_task(one(), name=f"t{n}") for n, one in enumerate((lock.acquire, semaphore.acquire, work.get))]
        await asyncio.sleep(0.01)
        assert sorted(wait.waiter for wait in report().waits) == ["orders/task:t0", "orders/task:t1", "orders/task:t2"]
        timed = asyncio.create_task(asyncio.wait_for(lock.acquire(), 60))
        await asyncio.sleep(0.01)
        waits = [wait for wait in report().waits if not wait.waiter.startswith("orders/task:t")]
        assert waits
        assert all(wait.deadline is not None for wait in waits)
        timed.cancel()
    work.put_nowait(1)
    await asyncio.gather(*tasks)
    assert report().waits == ()
    assert report().holds == (), "taken without a block"


def test_declared_waits_holds_and_facts_are_reported(agent: Agent, report: Snapshots) -> None:
    with agent.holding("row:41"), agent.waiting_for("row:42", "row:43", needs=1, what="a row", timeout=60):
        told = report()
        (wait,), (hold,) = told.waits, told.holds
        assert (wait.needs, wait.uncoloured, wait.what, wait.deadline is not None) == (1, True, "a row", True)
        assert wait.among == (ResourceTarget(resource="row:42"), ResourceTarget(resource="row:43"))
        assert (hold.party, hold.resource) == (wait.waiter, "row:41")
    with agent.waiting_for(PartyTarget(party=wait.waiter)):
        assert not report().waits[0].uncoloured
    assert (report().waits, report().holds) == ((), ())
    with pytest.raises(ValueError, match="needs is 2, but there are 1 targets"), agent.waiting_for("row", needs=2):
        pass


def test_a_declared_wait_is_for_the_answering_parties(agent: Agent, report: Snapshots) -> None:
    with agent.answers("inbox:a", "inbox:b"):
        answering = agent.answers("inbox:a")
        me = {(hold.party, hold.resource, hold.capacity) for hold in report().holds}
        (party,) = {name for name, _, _ in me}
        assert me == {(party, "inbox:a", 1), (party, "inbox:b", 1)}
    assert [hold.resource for hold in report().holds] == ["inbox:a"]
    answering.stop()
    answering.stop()
    assert report().holds == ()


def test_a_thread_that_has_ended_answers_nothing(agent: Agent, report: Snapshots) -> None:
    thread = threading.Thread(target=agent.answers, args=("inbox",))
    thread.start()
    thread.join()
    assert report().holds == ()


async def test_tasks_answer_until_they_are_done(agent: Agent, report: Snapshots) -> None:
    go = asyncio.Event()

    async def answer() -> None:
        agent.answers("inbox")
        await go.wait()

    tasks = [asyncio.create_task(answer(), name=f"t{number}") for number in range(2)]
    await asyncio.sleep(0.01)
    assert [hold.party for hold in report().holds] == ["orders/task:t0", "orders/task:t1"]
    tasks[0].cancel()
    await asyncio.wait([tasks[0]])
    assert [hold.party for hold in report().holds] == ["orders/task:t1"]
    go.set()
    await tasks[1]
    assert report().holds == ()


def test_idle_and_active_set_the_activity(agent: Agent, report: Snapshots) -> None:
    assert report().activity is Activity.ACTIVE
    agent.idle()
    assert report().activity is Activity.IDLE
    agent.active()
    assert report().activity is Activity.ACTIVE


def test_declared_facts_are_reported(agent: Agent, report: Snapshots) -> None:
    agent.fact(token=1, phase="warm", done=False, load=0.5)
    assert report().facts == {"token": 1, "phase": "warm", "done": False, "load": 0.5}
    with pytest.raises(TypeError, match="fact token"):
        agent.fact(token=[1])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="64 bits"):
        agent.fact(token=2**63)


# -- steps -------------------------------------------------------------------------------------------------------------
