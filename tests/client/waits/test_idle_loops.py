"""Which threads wait in a loop as idle workers do, and which are at work on an item."""

from __future__ import annotations

import itertools
import queue
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from stilltrue.runtime.introspection.frames import frames_of_threads
from stilltrue.runtime.waits.reachability.idle_loops import is_idle

SETTINGS = {"pause": 1}


class Ready:
    """A flag with a condition; no test sets it before its end."""

    def __init__(self) -> None:
        self.condition = threading.Condition()
        self.ready = False

    def wait(self) -> None:
        with self.condition:
            while not self.ready:
                self.condition.wait()

    def set(self) -> None:
        with self.condition:
            self.ready = True
            self.condition.notify_all()


class Worker:
    """The loops in which threads wait for ``done``."""

    def __init__(self, done: Any) -> None:
        self.done = done
        self.jobs: Any = queue.Queue()
        self.jobs.put(self.run)
        self.compiled: Any = queue.SimpleQueue()

    def run(self) -> None:
        self.done.wait()

    def items_of_its_queue(self) -> None:
        while True:
            job = self.jobs.get()
            if job is None:
                return
            job()

    def items_of_a_compiled_queue(self) -> None:
        self.compiled.put(self.run)
        while (job := self.compiled.get()) is not None:
            job()

    def items_without_waiting(self) -> None:
        while True:
            try:
                job = self.jobs.get_nowait()
            except queue.Empty:
                return
            if job is not None:
                job()

    def one_after_the_other(self) -> None:
        for one in [self.done]:
            one.wait()

    def in_a_comprehension(self) -> None:
        [one.wait() for one in [self.done]]

    def once(self) -> None:
        self.done.wait()

    def its_next_turn(self) -> None:
        while self.jobs is not None:
            self.done.wait()
            self.jobs = None

    def its_next_turn_with_settings(self) -> None:
        while self.jobs is not None:
            self.done.wait()
            self.jobs = SETTINGS.get("jobs")

    def several_times(self) -> None:
        for _ in range(2):
            self.done.wait()

    def for_ever(self) -> None:
        for _ in itertools.count():
            self.done.wait()
            if self.jobs is not None:
                return

    def a_loop_within_an_item(self) -> None:
        self.jobs.get()
        self.jobs.put(self.several_times)
        self.items_of_its_queue()


def _next_item(todo: Any) -> None:
    while todo.get() is not None:
        pass


def _next_of_iterator(todo: Any) -> None:
    for _ in range(1):
        for _ in iter(todo.get, None):
            pass


def idle(target: Callable[..., object], arguments: tuple[Any, ...], end: Callable[[], object]) -> bool:
    """Whether a thread that runs ``target`` is idle once it waits."""
    thread = threading.Thread(target=target, args=arguments, daemon=True)
    thread.start()
    try:
        while True:
            before = frames_of_threads().get(thread.ident or 0, [])
            places = [(one, one.f_lasti) for one in before]
            time.sleep(0.05)
            frames = frames_of_threads().get(thread.ident or 0, [])
            if frames and places == [(one, one.f_lasti) for one in frames]:
                return is_idle(frames)
            assert thread.is_alive()
    finally:
        end()
        thread.join(10)
        assert not thread.is_alive()


@pytest.mark.parametrize("make", [threading.Event, Ready])
@pytest.mark.parametrize(
    ("run", "expected"),
    [
        ("items_of_its_queue", False),
        ("items_of_a_compiled_queue", False),
        ("items_without_waiting", False),
        ("one_after_the_other", False),
        ("in_a_comprehension", False),
        ("once", False),
        ("its_next_turn", True),
        ("its_next_turn_with_settings", True),
        ("several_times", True),
        ("for_ever", True),
        ("a_loop_within_an_item", True),
    ],
)
def test_a_thread_that_waits_in_a_loop_is_idle_unless_it_is_at_work_on_an_item(
    run: str, expected: bool, make: Callable[[], Any]
) -> None:
    done = make()
    worker = Worker(done)

    jobs = worker.jobs

    def end() -> None:
        jobs.put(None)
        worker.compiled.put(None)
        done.set()

    assert idle(getattr(worker, run), (), end) is expected


@pytest.mark.parametrize("make", [queue.Queue, queue.SimpleQueue])
@pytest.mark.parametrize("run", [_next_item, _next_of_iterator])
def test_a_thread_that_waits_for_its_next_item_is_idle(run: Callable[..., object], make: Callable[[], Any]) -> None:
    todo = make()
    for _ in range(30):  # CPython specialises the call
        todo.put(1)
    assert idle(run, (todo,), lambda: todo.put(None))
