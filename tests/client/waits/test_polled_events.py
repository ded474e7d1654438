"""A thread that asks again and again whether an event is set, or a child has ended, waits like one that waits for it."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from stilltrue import Agent
from stilltrue.runtime.own_ref import OwnRef
from tests.client.look.worlds import look_at, of
from tests.client.waits.children import assert_waits_for_itself, enders, searched, using
from tests.client.waits.test_thread_waits import Threads, awaited, needs_memory, reported

pytestmark = [pytest.mark.usefixtures("only_this_file_counts"), needs_memory]
FAR_SECONDS = 600.0
PAUSE_SECONDS = 3.0
"""Longer than a search takes in a process that has run many tests: a wait that begins anew has other references."""
Ask = Callable[[Any], None]


@pytest.fixture
def threads() -> Iterator[Threads]:
    found = Threads()
    yield found
    found.end()


def by_sleeping(event: threading.Event) -> None:
    while not event.is_set():
        time.sleep(0.05)


def by_waiting(event: threading.Event) -> None:
    while not event.wait(PAUSE_SECONDS):
        pass


def by_waiting_until_a_break(event: threading.Event) -> None:
    while True:
        if event.wait(PAUSE_SECONDS):
            break


def by_waiting_and_asking(event: threading.Event) -> None:
    while not event.is_set():
        event.wait(timeout=PAUSE_SECONDS)


def at_most_a_while(event: threading.Event) -> None:
    end = time.monotonic() + FAR_SECONDS
    while not event.is_set() and time.monotonic() < end:
        time.sleep(0.05)


def until_ctrl_c(event: threading.Event) -> None:
    try:
        while not event.is_set():
            time.sleep(0.05)
    except KeyboardInterrupt:
        event.set()


def by_waiting_and_counting(event: threading.Event) -> None:
    count = 0
    while not event.wait(PAUSE_SECONDS):
        count += 1


def with_something_to_do(event: threading.Event) -> None:
    while not event.wait(0.05):
        event.is_set().bit_length()


def while_another_waits(event: threading.Event) -> None:
    other = threading.Event()
    while not event.is_set():
        other.wait(0.05)


def set_later(event: OwnRef) -> None:
    found = event()
    if found is not None:
        found.set()


class Stages:
    """Two stages, each of which takes its item from the other's queue."""

    def __init__(self, threads: Threads, take: Callable[[Any], Any]) -> None:
        self.left, self.right = queue.Queue[int](), queue.Queue[int]()
        threads.ends += [partial(put_later, OwnRef(one)) for one in (self.left, self.right)]
        threads.begin("waiter", self.run, take, self.left, self.right)
        threads.begin("other", self.run, take, self.right, self.left)

    def run(self, take: Callable[[Any], Any], inbox: Any, outbox: Any) -> None:
        outbox.put(take(inbox))


def an_item(inbox: Any) -> Any:
    while True:
        try:
            return inbox.get(timeout=PAUSE_SECONDS)
        except queue.Empty:
            continue


def an_item_or_none(inbox: Any) -> Any:
    end = time.monotonic() + FAR_SECONDS
    while time.monotonic() < end:
        try:
            return inbox.get(timeout=PAUSE_SECONDS)
        except queue.Empty:
            continue
    return 0


def put_later(found: OwnRef) -> None:
    inbox = found()
    if inbox is not None:
        inbox.put(1)


def test_who_asks_a_queue_for_an_item_waits_for_those_who_can_reach_it(alone: Callable[..., Agent], threads: Threads) -> None:
    agent = alone("here")
    Stages(threads, an_item)
    report = reported(agent, "waiter", "other")
    assert awaited(report)["waiter"] >= {"other"}


def test_who_asks_a_queue_for_a_while_does_not(alone: Callable[..., Agent], threads: Threads) -> None:
    agent = alone("here")
    Stages(threads, an_item_or_none)
    assert "waiter" not in awaited(reported(agent))


class Two:
    """Two threads, each of which would wake the other."""

    def __init__(self, threads: Threads, ask: Ask) -> None:
        self.asked, self.awaited = threading.Event(), threading.Event()
        threads.ends += [partial(set_later, OwnRef(one)) for one in (self.asked, self.awaited)]
        threads.begin("waiter", self.asks, ask)
        threads.begin("other", self.waits)

    def asks(self, ask: Ask) -> None:
        ask(self.asked)
        self.awaited.set()

    def waits(self) -> None:
        self.awaited.wait()
        self.asked.set()


@pytest.mark.parametrize(
    "ask", [by_sleeping, by_waiting, by_waiting_until_a_break, by_waiting_and_asking, by_waiting_and_counting]
)
def test_who_asks_about_an_event_waits_for_those_who_can_reach_it(
    alone: Callable[..., Agent], threads: Threads, ask: Ask
) -> None:
    agent = alone("here")
    Two(threads, ask)
    report = reported(agent, "waiter", "other")
    assert awaited(report)["waiter"] >= {"other"}
    time.sleep(0.2)  # it asks meanwhile
    seen = of(look_at(agent, report), "here/thread:waiter")
    assert (seen.unchanged, seen.deadline) == (True, None)


@pytest.mark.parametrize("ask", [at_most_a_while, until_ctrl_c, with_something_to_do, while_another_waits])
def test_who_may_also_stop_asking_waits_for_nobody(alone: Callable[..., Agent], threads: Threads, ask: Ask) -> None:
    agent = alone("here")
    Two(threads, ask)
    assert "waiter" not in awaited(reported(agent))


def test_another_thread_that_would_set_the_event_is_among_those_it_waits_for(
    alone: Callable[..., Agent], threads: Threads
) -> None:
    agent, two = alone("here"), Two(threads, by_sleeping)

    def later(event: threading.Event, gate: threading.Event) -> None:
        gate.wait(FAR_SECONDS)
        event.set()

    gate = threading.Event()
    threads.ends.append(partial(set_later, OwnRef(gate)))
    threads.begin("later", later, two.asked, gate)
    del two, gate
    assert awaited(reported(agent, "waiter"))["waiter"] >= {"other", "later"}


def until_it_has_ended(child: Any) -> None:
    while child.poll() is None:
        time.sleep(0.05)


def until_it_has_ended_or_late(child: Any) -> None:
    for _ in range(200):
        if child.poll() is not None:
            break
        time.sleep(0.05)


WRITES = "import sys; sys.stdout.write('x' * 1_000_000)"
of_children = pytest.mark.skipif(not Path("/proc/self/timers").exists(), reason="the system does not show timers")


@of_children
def test_who_asks_about_a_child_that_waits_for_it_waits_for_itself(alone: Callable[..., Agent]) -> None:
    agent = alone("here")
    with using(WRITES, until_it_has_ended, stdout=-1):
        assert_waits_for_itself(agent)


@of_children
@pytest.mark.parametrize(
    ("code", "use"), [("import time; time.sleep(600)", until_it_has_ended), (WRITES, until_it_has_ended_or_late)]
)
def test_a_child_that_goes_on_and_a_limited_time_are_not(alone: Callable[..., Agent], code: str, use: Ask) -> None:
    agent = alone("here")
    with using(code, use, stdout=-1):
        for _ in range(6):
            assert not enders(searched(agent))
