"""A thread that joins a child of ``multiprocessing``, which waits at a queue that only the thread can use, waits for itself."""

from __future__ import annotations

import multiprocessing
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from stilltrue import Agent
from stilltrue.runtime.waits.pipes.process_trees import tree_of
from tests.client.waits.children import (
    SECONDS_MAX,
    WAITER,
    assert_waits_for_itself,
    enders,
    looked_at,
    searched,
    wait_until_for,
)

pytestmark = [
    pytest.mark.usefixtures("only_this_file_counts"),
    pytest.mark.skipif(not Path("/proc/self/timers").exists(), reason="the system does not show timers"),
    pytest.mark.skipif(not (3, 11) <= sys.version_info < (3, 14), reason="references of frames are not read"),
]
FORK: Any = multiprocessing.get_context("fork")
LARGE = "x" * 1_000_000


def put(queue: Any) -> None:
    queue.put(LARGE)


def put_and_stay(queue: Any) -> None:
    queue.put(LARGE)
    time.sleep(600)


def send(connection: Any) -> None:
    connection.send(LARGE)


def stay(_: Any) -> None:
    time.sleep(600)


def through_queue() -> tuple[Any, Any, Callable[[Any], None]]:
    one = FORK.Queue()
    return one, one, put


def through_simple_queue() -> tuple[Any, Any, Callable[[Any], None]]:
    one = FORK.SimpleQueue()
    return one, one, put


def through_pipe() -> tuple[Any, Any, Callable[[Any], None]]:
    ours, theirs = FORK.Pipe()
    return ours, theirs, send


def through_one_way_pipe() -> tuple[Any, Any, Callable[[Any], None]]:
    ours, theirs = FORK.Pipe(duplex=False)
    return ours, theirs, send


class Job:
    """Has its queue and its children as attributes."""

    def __init__(self, children: list[Any], works: list[Callable[[Any], None]]) -> None:
        self.queue = FORK.JoinableQueue()
        self.children = [FORK.Process(target=work, args=(self.queue,), daemon=True) for work in works]
        children += self.children

    def run(self) -> None:
        """Start all of them, and join them in order."""
        for one in self.children:
            one.start()
        for one in self.children:
            one.join()


@contextmanager
def joining(run: Callable[[list[Any]], None]) -> Iterator[None]:
    """A thread called ``waiter`` that starts children, which it appends to the list, and joins one."""
    children: list[Any] = []
    thread = threading.Thread(target=run, args=(children,), name="waiter", daemon=True)
    thread.start()
    try:
        yield
    finally:
        for one in children:
            one.kill()
        thread.join(SECONDS_MAX)
        assert not thread.is_alive()


def assert_joins_itself(agent: Agent, run: Callable[[list[Any]], None]) -> None:
    """Assert that a thread that runs this waits for itself."""
    with joining(run):
        assert_waits_for_itself(agent)


@pytest.mark.parametrize("make", [through_queue, through_simple_queue, through_pipe, through_one_way_pipe])
def test_who_joins_a_child_that_waits_for_it_waits_for_itself(
    alone: Callable[..., Agent], make: Callable[[], tuple[Any, Any, Callable[[Any], None]]]
) -> None:
    def run(children: list[Any]) -> None:
        ours, theirs, work = make()
        child = FORK.Process(target=work, args=(theirs,), daemon=True)
        children.append(child)
        child.start()
        child.join()
        ours.close()

    assert_joins_itself(alone("here"), run)


def get(queue: Any) -> None:
    queue.get()


def get_all(queue: Any) -> None:
    for _ in iter(queue.get, None):
        pass


@pytest.mark.parametrize("work", [put, get])
def test_children_that_wait_for_their_turn_are_stuck_too(alone: Callable[..., Agent], work: Callable[[Any], None]) -> None:
    agent = alone("here")
    with joining(lambda children: Job(children, [work] * 3).run()):
        wait_until_for(agent, WAITER)
        end = time.monotonic() + SECONDS_MAX
        while not looked_at(agent).unchanged:  # the last of them has not got so far yet
            assert time.monotonic() < end
            time.sleep(0.1)


def test_a_child_that_waits_for_its_turn_is_stuck_too(alone: Callable[..., Agent]) -> None:
    def run(children: list[Any]) -> None:
        job = Job(children, [get] * 2)
        first, second = job.children
        first.start()
        while tree_of(first.pid) is None:
            time.sleep(0.01)
        second.start()
        second.join()

    assert_joins_itself(alone("here"), run)


def test_the_thread_that_sends_a_queues_items_goes_on_only_once_it_has_some(alone: Callable[..., Agent]) -> None:
    def run(children: list[Any]) -> None:
        job = Job(children, [get_all])
        job.queue.put("the only item")
        job.run()

    assert_joins_itself(alone("here"), run)


def test_another_child_that_goes_on_may_read_the_queue(alone: Callable[..., Agent]) -> None:
    agent = alone("here")
    with joining(lambda children: Job(children, [put, stay]).run()):
        wait_until_for(agent, WAITER)
        assert not looked_at(agent).unchanged


def test_a_child_that_goes_on_is_unknown(alone: Callable[..., Agent]) -> None:
    agent = alone("here")
    with joining(lambda children: Job(children, [put_and_stay]).run()):
        for _ in range(6):
            assert not enders(searched(agent))


def test_another_thread_that_has_the_queue_may_read_it(alone: Callable[..., Agent]) -> None:
    end = threading.Event()

    def read_later(queue: Any) -> None:
        end.wait()
        queue.empty()

    def run(children: list[Any]) -> None:
        job = Job(children, [put])
        threading.Thread(target=read_later, args=(job.queue,), name="reader", daemon=True).start()
        job.run()

    agent = alone("here")
    with joining(run):
        wait_until_for(agent, "here/thread:reader")
        end.set()


def test_the_writing_end_of_a_pipe_is_not_the_one_that_ends_the_childs_wait(alone: Callable[..., Agent]) -> None:
    end = threading.Event()

    def receive_later(reader: Any) -> None:
        end.wait()
        reader.poll()

    def run(children: list[Any]) -> None:
        reader, writer = FORK.Pipe(duplex=False)
        threading.Thread(target=receive_later, args=(reader,), name="reader", daemon=True).start()
        del reader
        children.append(FORK.Process(target=send, args=(writer,), daemon=True))
        children[0].start()
        children[0].join()
        writer.close()

    agent = alone("here")
    with joining(run):
        for _ in range(6):
            assert WAITER not in enders(searched(agent))
        end.set()


def test_a_join_with_a_timeout_ends(alone: Callable[..., Agent]) -> None:
    def run(children: list[Any]) -> None:
        job = Job(children, [put])
        job.children[0].start()
        job.children[0].join(600)

    agent = alone("here")
    with joining(run):
        for _ in range(6):
            assert not enders(searched(agent))
