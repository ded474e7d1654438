"""A caller of a function that cancels what its module keeps is a way out, however it got the function."""

from __future__ import annotations

import functools
import gc
import sched
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import grpc
import pytest

from stilltrue import Agent
from tests.client.look.worlds import Stuck, look_at_caller

FAR_SECONDS = 60.0
_CALLS: dict[int, Any] = {}


def calls_and_keeps_it(get: Any) -> None:
    call = _CALLS[0] = get.future(b"")
    call.result()


def cancel_all(*_: object) -> None:
    for call in _CALLS.values():
        call.cancel()


def give_up(*_: object) -> None:
    cancel_all()


def count_all(*_: object) -> None:
    assert len(_CALLS) < 2


def waits_and_cancels(over: threading.Event) -> None:
    if not over.wait(FAR_SECONDS):
        cancel_all()


def waits_and_gives_up(over: threading.Event) -> None:
    if not over.wait(FAR_SECONDS):
        give_up()


def waits_and_counts(over: threading.Event) -> None:
    if not over.wait(FAR_SECONDS):
        count_all()


def by_a_thread(job: Callable[..., None], over: threading.Event, stack: ExitStack) -> None:
    waits = {cancel_all: waits_and_cancels, give_up: waits_and_gives_up, count_all: waits_and_counts}[job]
    thread = threading.Thread(target=waits, args=(over,))
    thread.start()
    stack.callback(thread.join)


def by_a_scheduler(job: Callable[..., None], over: threading.Event, stack: ExitStack) -> None:
    scheduler = sched.scheduler(delayfunc=over.wait)
    event = scheduler.enter(FAR_SECONDS, 1, job)
    del job
    _run(scheduler.run, stack)
    stack.callback(scheduler.cancel, event)


def by_the_end_of_an_item(job: Callable[..., None], over: threading.Event, stack: ExitStack) -> None:
    pool = stack.enter_context(ThreadPoolExecutor(1))
    pool.submit(over.wait, FAR_SECONDS).add_done_callback(job)


def by_an_item_that_is_queued(job: Callable[..., None], over: threading.Event, stack: ExitStack) -> None:
    pool = stack.enter_context(ThreadPoolExecutor(1))
    pool.submit(over.wait, FAR_SECONDS)
    pool.submit(job)


def _run(function: Callable[[], object], stack: ExitStack) -> None:
    thread = threading.Thread(target=function)
    thread.start()
    stack.callback(thread.join)


BESIDE = (
    by_a_thread,
    by_a_scheduler,
    by_the_end_of_an_item,
    by_an_item_that_is_queued,
)


@pytest.fixture
def over() -> Iterator[threading.Event]:
    over = threading.Event()
    yield over
    over.set()
    _CALLS.clear()


@pytest.mark.parametrize("job", [cancel_all, give_up, count_all], ids=lambda one: one.__name__)
@pytest.mark.parametrize("beside", BESIDE, ids=lambda one: one.__name__)
def test_a_caller_of_a_function_that_cancels_its_modules_calls_is_a_way_out(
    alone: Callable[..., Agent], stuck: Stuck, over: threading.Event, beside: Any, job: Callable[..., None]
) -> None:
    with ExitStack() as stack:
        beside(job, over, stack)
        stack.callback(over.set)
        seen = look_at_caller(alone, stuck, calls_and_keeps_it)
    assert bool(seen.ways_out) is (job is not count_all), seen.ways_out


def cancels_by_the_name_of_a_global(over: threading.Event) -> None:
    name = "calls"
    if not over.wait(FAR_SECONDS):
        globals()[f"_{name.upper()}"][0].cancel()


def calls_by_the_name_of_a_global(over: threading.Event) -> None:
    what = "all"
    if not over.wait(FAR_SECONDS):
        globals()[f"cancel_{what}"]()


class Operations:
    @staticmethod
    def drop() -> None:
        cancel_all()


def calls_an_item_of_vars(over: threading.Event) -> None:
    if not over.wait(FAR_SECONDS):
        vars(Operations)["drop"]()


def calls_what_a_class_dictionary_has(over: threading.Event) -> None:
    if not over.wait(FAR_SECONDS):
        Operations.__dict__.get("drop", cancel_none)()


def cancel_none() -> None:
    pass


def reads_its_variables(over: threading.Event) -> None:
    if not over.wait(FAR_SECONDS):
        print(vars(Operations))


BY_TEXT = (
    cancels_by_the_name_of_a_global,
    calls_by_the_name_of_a_global,
    calls_an_item_of_vars,
    calls_what_a_class_dictionary_has,
)


@pytest.mark.parametrize("beside", [*BY_TEXT, reads_its_variables])
def test_who_looks_a_function_up_by_text_is_a_way_out(
    alone: Callable[..., Agent], stuck: Stuck, over: threading.Event, beside: Callable[[threading.Event], None]
) -> None:
    thread = threading.Thread(target=beside, args=(over,))
    thread.start()
    seen = look_at_caller(alone, stuck, calls_and_keeps_it)
    over.set()
    thread.join()
    assert bool(seen.ways_out) is (beside in BY_TEXT), seen.ways_out


class Bus:
    """Sends events to what its listeners' kinds and weak references lead to."""

    @functools.singledispatchmethod
    def on(self, event: object) -> None:
        """Any other event."""

    @on.register
    def _(self, event: OSError) -> None:
        cancel_all()

    def give_up(self) -> None:
        cancel_all()

    def count(self) -> None:
        count_all()


class Line(Bus):
    """What its base does."""

    def give_up(self) -> None:
        super().give_up()

    def count(self) -> None:
        super().count()


_LINE = Line()
_BUS = Bus()
_LISTENERS = [weakref.WeakMethod(_BUS.give_up)]
_COUNTERS = [weakref.WeakMethod(_BUS.count)]


def sends_by_the_kind_of_event(over: threading.Event) -> None:
    if not over.wait(FAR_SECONDS):
        _BUS.on(OSError())


def calls_weak_methods(over: threading.Event) -> None:
    if not over.wait(FAR_SECONDS):
        for one in _LISTENERS:
            one()()  # type: ignore[misc]


def calls_what_its_base_does(over: threading.Event) -> None:
    if not over.wait(FAR_SECONDS):
        _LINE.give_up()


def calls_what_else_its_base_does(over: threading.Event) -> None:
    if not over.wait(FAR_SECONDS):
        _LINE.count()


class Sweeping:
    """Cancels what it has at the end of its block."""

    def __init__(self) -> None:
        self.calls = _CALLS

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exception: object) -> None:
        for call in self.calls.values():
            call.cancel()


class Counting(Sweeping):
    def __exit__(self, *exception: object) -> None:
        len(self.calls)


needs_stacks = pytest.mark.skipif(sys.version_info < (3, 11), reason="the stacks of running frames cannot be read")


def leaves_a_block_without_a_name(over: threading.Event) -> None:
    with Sweeping():
        over.wait(FAR_SECONDS)


def leaves_another_block_without_a_name(over: threading.Event) -> None:
    with Counting():
        over.wait(FAR_SECONDS)


def calls_other_weak_methods(over: threading.Event) -> None:
    if not over.wait(FAR_SECONDS):
        for one in _COUNTERS:
            one()()  # type: ignore[misc]


@pytest.mark.parametrize(
    ("beside", "ends"),
    [
        (sends_by_the_kind_of_event, True),
        (calls_weak_methods, True),
        (calls_other_weak_methods, False),
        (calls_what_its_base_does, True),
        (calls_what_else_its_base_does, False),
        pytest.param(leaves_a_block_without_a_name, True, marks=needs_stacks),
        pytest.param(leaves_another_block_without_a_name, False, marks=needs_stacks),
    ],
)
def test_methods_that_run_without_being_called_by_their_name_count(
    alone: Callable[..., Agent], stuck: Stuck, over: threading.Event, beside: Callable[[threading.Event], None], ends: bool
) -> None:
    thread = threading.Thread(target=beside, args=(over,))
    thread.start()
    seen = look_at_caller(alone, stuck, calls_and_keeps_it)
    over.set()
    thread.join()
    assert bool(seen.ways_out) is ends, seen.ways_out


def cancels_every_call(over: threading.Event) -> None:
    if not over.wait(FAR_SECONDS):
        for one in gc.get_objects():
            if isinstance(one, grpc.Future):
                one.cancel()


def counts_every_call(over: threading.Event) -> None:
    if not over.wait(FAR_SECONDS):
        assert sum(isinstance(one, grpc.Future) for one in gc.get_objects())


@pytest.mark.parametrize(("sweep", "ends"), [(cancels_every_call, True), (counts_every_call, False)])
def test_code_that_gets_objects_from_the_collector_may_cancel_any_task(
    alone: Callable[..., Agent], stuck: Stuck, over: threading.Event, sweep: Callable[[threading.Event], None], ends: bool
) -> None:
    thread = threading.Thread(target=sweep, args=(over,))
    thread.start()
    seen = look_at_caller(alone, stuck, lambda get: get.future(b"").result())
    over.set()
    thread.join()
    assert bool(seen.ways_out) is ends, seen.ways_out
