"""Which loops only ask, again and again, and may do no more in between than print, log, count or sleep."""

from __future__ import annotations

import io
import logging
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent import futures
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import suppress
from typing import Any

import pytest

from stilltrue.runtime.introspection.frames import frames_of_thread
from stilltrue.runtime.waits.resolvers.polling_loops import Asking, asked_by_thread

PATIENCE_SECONDS = 10.0
STEP = 0.02
LOG = logging.getLogger("tests.polling_loops")
FILTERED = logging.getLogger("tests.polling_loops.filtered")
SETTINGS: dict[str, Any] = {}
Ask = Callable[[Any], object]


class Given:
    """What a thread asks about; ``end`` ends all of it."""

    def __init__(self) -> None:
        self.name = "given"
        self.event, self.queue, self.simple = threading.Event(), queue.Queue[int](), queue.SimpleQueue[int]()
        self.future, self.lock, self.shares = futures.Future[int](), threading.Lock(), threading.Semaphore(0)
        self.thread = threading.Thread(target=self.event.wait, daemon=True)
        self.inner, self.replaced = self.event, self.event
        self.stopped = False
        self.lock.acquire()
        self.thread.start()

    def replace(self) -> None:
        self.replaced = threading.Event()

    def describe(self) -> str:
        return self.name

    def end(self) -> None:
        self.stopped = True
        self.event.set()
        self.queue.put(1)
        self.simple.put(1)
        self.future.set_result(1)
        self.lock.release()
        self.shares.release()
        self.thread.join()


def result_until_a_break(given: Given) -> None:
    future = given.future
    while True:
        try:
            future.result(timeout=STEP)
            break
        except futures.TimeoutError:
            continue


def result_with_another_name(given: Given) -> int:
    future = given.future
    while True:
        try:
            return future.result(STEP)
        except FutureTimeoutError as error:
            print("still waiting", error)


def result_counting(given: Given) -> int:
    future, tries = given.future, 0
    while True:
        try:
            return future.result(STEP)
        except Exception:  # noqa: BLE001 - as people write it
            tries += 1
            if tries % 10 == 0:
                LOG.info("waited %d times", tries)


def item(given: Given) -> int:
    while True:
        try:
            return given.queue.get(timeout=STEP)
        except queue.Empty:
            pass


def item_of_compiled_queue(given: Given) -> int:
    while True:
        try:
            return given.simple.get(timeout=STEP)
        except queue.Empty:
            LOG.debug("empty")


def items_to_handle(given: Given) -> None:
    while True:
        try:
            one = given.queue.get(timeout=STEP)
        except queue.Empty:
            continue
        given.describe()
        if one:
            return


def event_with_a_log(given: Given) -> None:
    while not given.event.wait(STEP):
        LOG.warning(f"still waiting for {given.name}")


def event_with_the_time(given: Given) -> None:
    begun = time.monotonic()
    while not given.event.wait(STEP):
        LOG.info("waited %.1f s", time.monotonic() - begun)


def lock_with_a_print(given: Given) -> None:
    while not given.lock.acquire(timeout=STEP):
        print("waiting for the lock of", given.name, flush=True)


def lock_without_waiting(given: Given) -> None:
    while not given.lock.acquire(blocking=False):
        time.sleep(STEP)


def a_share(given: Given) -> None:
    while not given.shares.acquire(timeout=STEP):
        pass


def done_with_a_log(given: Given) -> None:
    while not given.future.done():
        time.sleep(STEP)
        LOG.debug("not done")


@pytest.fixture
def given() -> Iterator[Given]:
    found = Given()
    yield found
    with suppress(Exception):
        found.end()


def asked(given: Given, ask: Ask, seconds: float, file: Any = None) -> Asking | None:
    """What a thread that runs ``ask`` is found to ask about within this time, without pytest's handlers and ``stdout``."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdout", file or io.StringIO())
        patch.setattr(logging.root, "handlers", [])
        return _asked(given, ask, seconds)


def _asked(given: Given, ask: Ask, seconds: float) -> Asking | None:
    thread = threading.Thread(target=ask, args=(given,), daemon=True)
    thread.start()
    end = time.monotonic() + seconds
    found = None
    while found is None and time.monotonic() < end:
        time.sleep(STEP / 4)
        frames = frames_of_thread(thread.ident or 0)
        found = asked_by_thread(frames) if frames else None
    assert thread.is_alive()
    given.end()
    thread.join(PATIENCE_SECONDS)
    return found


@pytest.mark.parametrize(
    ("ask", "what"),
    [
        (result_until_a_break, "future"),
        pytest.param(
            *(result_with_another_name, "future"),
            marks=pytest.mark.skipif(sys.version_info < (3, 11), reason="the exception's variable has a block of its own"),
        ),
        (result_counting, "future"),
        (item, "queue"),
        (item_of_compiled_queue, "simple"),
        (items_to_handle, "queue"),
        (event_with_a_log, "event"),
        (event_with_the_time, "event"),
        (lock_with_a_print, "lock"),
        (lock_without_waiting, "lock"),
        (a_share, "shares"),
        (done_with_a_log, "future"),
    ],
)
def test_a_loop_that_only_asks_is_found(given: Given, ask: Ask, what: str) -> None:
    thing = getattr(given, what)
    found = asked(given, ask, PATIENCE_SECONDS)
    assert found is not None
    assert found.thing() is thing


def result_at_most_some_times(given: Given) -> None:
    future, tries = given.future, 0
    while True:
        try:
            future.result(timeout=STEP)
            break
        except futures.TimeoutError:
            tries += 1
            if tries > 1_000:
                raise


def result_unless_stopped(given: Given) -> None:
    future = given.future
    while not given.stopped:
        with suppress(futures.TimeoutError):
            future.result(timeout=STEP)


def result_and_cancels(given: Given) -> None:
    future = given.future
    while True:
        try:
            future.result(timeout=STEP)
            break
        except futures.TimeoutError:
            if given.stopped:
                future.cancel()


def result_of_the_next(given: Given) -> None:
    future = given.future
    while True:
        try:
            future.result(timeout=STEP)
            break
        except futures.TimeoutError:
            future = SETTINGS.get("future", future)


def another_exception(given: Given) -> None:
    future = given.future
    while True:
        try:
            future.result(timeout=1_000)
            break
        except KeyError:
            continue


def item_unless_late(given: Given) -> None:
    end = time.monotonic() + 1_000
    while time.monotonic() < end:
        try:
            given.queue.get(timeout=STEP)
            break
        except queue.Empty:
            continue


def item_unless_stopped(given: Given) -> None:
    while not given.stopped:
        try:
            given.queue.get(timeout=STEP)
        except queue.Empty:
            continue


def event_and_calls(given: Given) -> None:
    while not given.event.wait(STEP):
        given.describe()


def event_and_logs_what_it_calls(given: Given) -> None:
    while not given.event.wait(STEP):
        LOG.debug("waiting for %s", given.describe())


def event_and_logs_an_object(given: Given) -> None:
    while not given.event.wait(STEP):
        LOG.debug("waiting for %s", given)


def event_and_a_filtered_log(given: Given) -> None:
    while not given.event.wait(STEP):
        FILTERED.debug("waiting")


def event_and_sets_an_attribute(given: Given) -> None:
    while not given.event.wait(STEP):
        given.name = "another"


def event_that_a_method_replaces(given: Given) -> None:
    while not given.replaced.wait(STEP):
        pass


def lock_a_few_times(given: Given) -> None:
    for _ in range(1_000):
        if given.lock.acquire(timeout=STEP):
            break


@pytest.mark.parametrize(
    "ask",
    [
        result_at_most_some_times,
        result_unless_stopped,
        result_and_cancels,
        result_of_the_next,
        another_exception,
        item_unless_late,
        item_unless_stopped,
        event_and_calls,
        event_and_logs_what_it_calls,
        event_and_logs_an_object,
        event_and_a_filtered_log,
        event_and_sets_an_attribute,
        event_that_a_method_replaces,
        lock_a_few_times,
    ],
)
def test_a_loop_that_may_end_otherwise_or_do_anything_else_is_not(given: Given, ask: Ask) -> None:
    FILTERED.addFilter(lambda _: True)
    assert asked(given, ask, 0.5) is None


class Telling(io.StringIO):
    """A file of the application's own."""


def test_nor_is_one_that_prints_to_a_file_of_the_applications_own(given: Given) -> None:
    assert asked(given, lock_with_a_print, 0.5, Telling()) is None


def test_nor_is_one_that_logs_by_a_handler_of_the_applications_own(given: Given) -> None:
    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            record.getMessage()

    handler = Handler()
    LOG.addHandler(handler)
    try:
        assert asked(given, event_with_a_log, 0.5) is None
    finally:
        LOG.removeHandler(handler)
