"""A thread that waits for what a loop is to do that no thread runs waits for those who can run the loop."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import CancelledError
from dataclasses import replace
from typing import Any

import pytest

from stilltrue import Agent
from stilltrue.model import PartyName
from stilltrue.runtime.compat import value_stack
from stilltrue.runtime.introspection.threads_and_tasks import Place
from stilltrue.runtime.look.ways_out.actors import Actor
from stilltrue.runtime.look.ways_out.findings import Found
from stilltrue.runtime.look.ways_out.proved import without_proved
from stilltrue.runtime.own_ref import OwnRef
from stilltrue.runtime.waits.reachability.thread_waits import ReportedThreadWait
from tests.client.look.worlds import look_at
from tests.client.waits.test_thread_waits import (
    FAR_SECONDS,
    PATIENCE_SECONDS,
    Threads,
    _there,
    awaited,
    reaching,
    reported,
    threads,
    until_all_wait,
)

__all__ = ["threads"]
pytestmark = [
    pytest.mark.usefixtures("only_this_file_counts"),
    pytest.mark.skipif(not value_stack._can_read(), reason="this interpreter's frames cannot be read"),
]


async def price() -> int:
    return 1


async def slow_price() -> int:
    await asyncio.sleep(FAR_SECONDS)
    return 1


class Waiter:
    """A thread named ``waiter`` that waits for a coroutine on a loop that nobody runs. It has the loop, too."""

    def __init__(self, threads: Threads, loop: asyncio.AbstractEventLoop, *, begun: bool = False) -> None:
        future = asyncio.run_coroutine_threadsafe(slow_price() if begun else price(), loop)
        if begun:
            loop.run_until_complete(asyncio.sleep(0.01))
        self.future = OwnRef(future)
        threads.ends.append(self.end)
        threads.begin("waiter", _waits, [loop, future])
        del future
        until_all_wait("waiter")

    def end(self) -> None:
        future = self.future()
        if future is not None and not future.done():
            future.set_result(1)


def _waits(kept: list[Any]) -> None:
    loop = kept.pop(0)
    kept.pop().result()
    assert not loop.is_running()


@pytest.fixture
def over(threads: Threads) -> threading.Event:
    found = threading.Event()
    threads.ends.append(found.set)
    return found


def keep(threads: Threads, over: threading.Event, *kept: Any) -> None:
    """Begin a thread named ``other`` that has these, and may use them later."""

    def run(kept: list[Any]) -> None:
        one = kept.pop()
        over.wait(FAR_SECONDS)
        str(one)

    threads.begin("other", run, list(kept))


# -- who can run the loop --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("begun", [False, True], ids=["not_begun", "under_way"])
def test_nobody_else_can_run_a_loop_that_only_the_waiting_thread_can_reach(threads: Threads, begun: bool) -> None:
    waiter = Waiter(threads, asyncio.new_event_loop(), begun=begun)
    assert reaching(waiter.future) == {"waiter"}


def _ended_task(loop: asyncio.AbstractEventLoop) -> Any:
    task = loop.create_task(price())
    loop.run_until_complete(task)
    return task


_WAYS: dict[str, Callable[[asyncio.AbstractEventLoop], Any]] = {
    "the_loop": lambda loop: loop,
    "a_task": lambda loop: loop.create_task(price()),
    "an_ended_task": _ended_task,
    "a_future": lambda loop: loop.create_future(),
    "a_timer": lambda loop: loop.call_later(FAR_SECONDS, int),
    "its_method": lambda loop: loop.run_forever,
    "a_partial": lambda loop: functools.partial(loop.call_soon, int),
    "a_thread_that_has_not_begun": lambda loop: threading.Thread(target=loop.run_forever),
}


@pytest.mark.parametrize("way", _WAYS)
def test_whoever_has_the_loop_or_leads_to_it_may_run_it(threads: Threads, over: threading.Event, way: str) -> None:
    loop = asyncio.new_event_loop()
    keep(threads, over, _WAYS[way](loop))
    waiter = Waiter(threads, loop)
    del loop
    until_all_wait("other")
    assert reaching(waiter.future) == {"waiter", "other"}


def test_a_thread_has_the_loop_that_was_set_for_it(threads: Threads, over: threading.Event) -> None:
    found: list[asyncio.AbstractEventLoop] = []
    ready = threading.Event()

    def run() -> None:
        loop = asyncio.new_event_loop()
        asyncio.set_event_loop(loop)
        found.append(loop)
        del loop
        ready.set()
        over.wait(FAR_SECONDS)
        asyncio.set_event_loop(None)

    threads.begin("owner", run)
    ready.wait(PATIENCE_SECONDS)
    waiter = Waiter(threads, found.pop())
    until_all_wait("owner")
    reached = reaching(waiter.future)
    assert reached is not None
    assert {"waiter", "owner"} <= reached


def test_a_weak_reference_to_the_loop_makes_that_unknown(threads: Threads) -> None:
    loop = asyncio.new_event_loop()
    weak = weakref.ref(loop)
    waiter = Waiter(threads, loop)
    del loop
    assert reaching(waiter.future) is None
    assert weak() is not None


def test_a_loop_of_another_class_is_not_read(threads: Threads) -> None:
    class Loop(asyncio.SelectorEventLoop):
        pass

    waiter = Waiter(threads, Loop())
    assert reaching(waiter.future) is None


def test_whoever_drops_a_task_of_such_a_loop_runs_the_rest_of_it(threads: Threads, over: threading.Event) -> None:
    loop, done = asyncio.new_event_loop(), threading.Event()

    async def work(done: threading.Event) -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            done.set()

    def run(kept: list[Any]) -> None:
        task = kept.pop()  # noqa: F841 - it drops the last reference to the task when it ends
        over.wait(FAR_SECONDS)

    kept = [loop.create_task(work(done))]
    loop.run_until_complete(asyncio.sleep(0.01))
    weak = OwnRef(done)
    threads.ends.append(lambda: _there(weak).set())
    threads.begin("other", run, kept)
    threads.begin("waiter", lambda waits: waits.pop()(), [done.wait])
    del loop, done
    until_all_wait("other", "waiter")
    assert reaching(weak) == {"other"}


# -- reports ---------------------------------------------------------------------------------------------------------------


class Client:
    """Calls coroutines on a loop of its own, as synchronous code does."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever)
        self.thread.start()

    def ask(self, *, slowly: bool = False) -> int:
        return asyncio.run_coroutine_threadsafe(slow_price() if slowly else price(), self.loop).result()

    def stop(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(PATIENCE_SECONDS)

    def finish(self) -> None:
        """Let the loop do what it has left."""
        for task in asyncio.all_tasks(self.loop):
            task.cancel()
        self.loop.run_until_complete(asyncio.sleep(0.01))
        self.loop.close()


def _asks(client: Client, slowly: bool) -> None:
    with contextlib.suppress(CancelledError):
        client.ask(slowly=slowly)


@pytest.mark.parametrize("slowly", [False, True], ids=["not_begun", "under_way"])
def test_a_thread_that_asks_a_loop_whose_thread_has_ended_waits_for_itself(
    alone: Callable[..., Agent], threads: Threads, slowly: bool
) -> None:
    """A published bug: a pool's shutdown waits for threads that wait for a loop which has stopped."""
    client = Client()
    if not slowly:
        client.stop()
    weak = OwnRef(client)
    threads.ends.append(lambda: _there(weak).finish())
    threads.begin("asks", _asks, client, slowly)
    until_all_wait("asks")
    if slowly:
        client.stop()
    del client
    agent = alone("one")
    report = reported(agent)
    assert awaited(report) == {"asks": {"asks"}}
    looks = [one for one in look_at(agent, report).parties if one.party.endswith(":asks")]
    assert [(one.unchanged, one.ways_out, one.doubt) for one in looks] == [(True, (), "")]


def test_only_the_wait_for_what_was_proved_is_left_out_of_the_ways_out() -> None:
    """The loop may also end something else, such as the call that a thread serves: nothing is proved about that."""
    thing, other, loop = threading.Event(), threading.Event(), asyncio.new_event_loop()
    party = PartyName("one/thread:a")
    suspects = [Found(Place(party=party, frames=(), ident=1), [thing, other])]
    proved = {party: ReportedThreadWait(1, OwnRef(thing), frozenset())}
    actor = Actor(text="a callback", roots=(), loop=loop)
    assert without_proved(suspects, id(thing), actor, proved) == []
    assert without_proved(suspects, id(other), actor, proved) == suspects
    assert without_proved(suspects, id(thing), replace(actor, loop=None), proved) == suspects
    loop.close()
