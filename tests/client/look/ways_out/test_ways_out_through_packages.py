"""Threads that run only an installed package's code: it calls the jobs, callbacks and handlers that it was given."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import grpc
import pytest

from stilltrue import Agent
from stilltrue.protocol.requests.look import PartyLook
from stilltrue.runtime.look.ways_out.kinds.wakers import callbacks_of_library
from tests.client.look.ways_out.closing import FAR_SECONDS, interrupted, may_close_the_channel
from tests.client.look.worlds import Stuck, look_at_caller
from tests.client.waits.releasers import commands

SOURCE = """
import threading


class Job:
    __slots__ = ("function",)


class Handler:
    def dispatch(self, event):
        getattr(self, f"on_{event}")()


class LoopScheduler:
    def __init__(self):
        self.jobs = []

    def wakes_up(self):
        for job in self.jobs:
            job.function()


class Observer:
    def __init__(self, subscriber):
        self._subscriber = subscriber

    def next(self):
        self._subscriber()


def timer(subscriber):
    observer = Observer(subscriber)

    def action():
        observer.next()

    def interval():
        action()

    return threading.Timer(60, interval)


class Runner(threading.Thread):
    def __init__(self, go):
        super().__init__()
        self.go, self.jobs, self.handlers, self.on_message = go, [], {}, None

    def run(self):
        while not self.go.wait(60):
            for job in self.jobs:
                job.function()
            for handler in self.handlers.values():
                handler.dispatch("change")
            if self.on_message is not None:
                self.on_message(self)
"""
PACKAGE: dict[str, Any] = {"__name__": "runners"}
exec(compile(SOURCE, str(Path(grpc.__file__).parent.with_name("runners") / "runner.py"), "exec"), PACKAGE)  # nowhere
CALLS: list[Any] = []


class State:
    """Polled by a thread that then cancels."""

    stop = False


STATE = State()
OPENED: list[threading.Event] = []
CHANNELS: list[Any] = []


def cancels(*_: Any) -> None:
    for call in CALLS:
        call.cancel()


def opens(*_: Any) -> None:
    for one in OPENED:
        one.set()


def raises_the_flag(*_: Any) -> None:
    STATE.stop = True


def counts(*_: Any) -> int:
    return len(CALLS)


def as_a_job(runner: Any, act: Callable[..., object]) -> None:
    job = PACKAGE["Job"]()
    job.function = act
    runner.jobs.append(job)


def as_a_callback(runner: Any, act: Callable[..., object]) -> None:
    runner.on_message = act


def as_a_handler(runner: Any, act: Callable[..., object]) -> None:
    runner.handlers["own"] = type("Own", (PACKAGE["Handler"],), {"on_change": lambda _: act()})()


def begun(given: Callable[..., None], act: Callable[..., object], over: threading.Event) -> threading.Thread:
    """A thread that runs only the package's code, to which ``act`` was ``given``."""
    runner: threading.Thread = PACKAGE["Runner"](over)
    given(runner, act)
    runner.start()
    return runner


def _look_beside(alone: Callable[..., Agent], stuck: Stuck) -> PartyLook:
    """The look at a caller whose call another thread cancels once an event is set."""
    opened = threading.Event()

    def waits() -> None:
        opened.wait()
        cancels()

    def caller(get: Any) -> None:
        CALLS.append(get.future(b""))
        CALLS[-1].result()

    OPENED.append(opened)
    other = threading.Thread(target=waits)
    other.start()
    seen = look_at_caller(alone, stuck, caller)
    OPENED.clear()
    CALLS.clear()
    opened.set()
    other.join()
    return seen


@pytest.mark.parametrize("act", [cancels, opens, counts])
@pytest.mark.parametrize("given", [as_a_job, as_a_callback, as_a_handler])
def test_what_a_package_was_given_to_call_may_end_the_wait(
    alone: Callable[..., Agent], stuck: Stuck, given: Callable[..., None], act: Callable[..., object]
) -> None:
    over = threading.Event()
    runner = begun(given, act, over)
    seen = _look_beside(alone, stuck)
    over.set()
    runner.join()
    assert bool(seen.ways_out) is (act is not counts), seen.ways_out


@pytest.mark.parametrize("act", [cancels, opens, counts])
def test_a_job_of_a_packages_scheduler_on_a_loop_may_end_the_wait(
    alone: Callable[..., Agent], stuck: Stuck, act: Callable[..., object]
) -> None:
    loop, scheduler = asyncio.new_event_loop(), PACKAGE["LoopScheduler"]()
    as_a_job(scheduler, act)
    loop.call_later(FAR_SECONDS, scheduler.wakes_up)
    runner = threading.Thread(target=loop.run_forever)
    runner.start()
    seen = _look_beside(alone, stuck)
    loop.call_soon_threadsafe(loop.stop)
    runner.join()
    loop.close()
    assert bool(seen.ways_out) is (act is not counts), seen.ways_out


def closes(*_: Any) -> None:
    for channel in CHANNELS:
        channel.close()


@pytest.mark.parametrize("act", [closes, raises_the_flag, counts])
@pytest.mark.parametrize("given", [as_a_job, as_a_callback, as_a_handler])
def test_what_a_package_was_given_to_call_may_close_the_channel(
    alone: Callable[..., Agent], stuck: Stuck, given: Callable[..., None], act: Callable[..., object]
) -> None:
    STATE.stop = False
    over = threading.Event()
    runner = begun(given, act, over)

    def polls(channel: Any, go: threading.Event) -> None:
        CHANNELS.append(channel)
        while not STATE.stop:
            interrupted(go)
        channel.close()

    found = may_close_the_channel(alone, stuck, polls)
    CHANNELS.clear()
    over.set()
    runner.join()
    assert found is (act is not counts)


@pytest.mark.parametrize("act", [closes, raises_the_flag, counts])
def test_what_a_packages_timer_was_given_to_call_may_close_the_channel(
    alone: Callable[..., Agent], stuck: Stuck, act: Callable[..., object]
) -> None:
    STATE.stop = False
    timer = PACKAGE["timer"](act)
    timer.start()

    def polls(channel: Any, go: threading.Event) -> None:
        CHANNELS.append(channel)
        while not STATE.stop:
            interrupted(go)
        channel.close()

    found = may_close_the_channel(alone, stuck, polls)
    CHANNELS.clear()
    timer.cancel()
    timer.join()
    assert found is (act is not counts)


def test_where_a_thread_has_a_suspended_greenlet_any_wait_is_in_doubt(alone: Callable[..., Agent], stuck: Stuck) -> None:
    greenlet: Any = pytest.importorskip("greenlet")

    def waits_in_between() -> None:
        greenlet.getcurrent().parent.switch()

    def switches(over: threading.Event) -> None:
        other = greenlet.greenlet(waits_in_between)
        other.switch()
        over.wait()
        other.switch()

    over = threading.Event()
    thread = threading.Thread(target=switches, args=(over,))
    thread.start()
    seen = look_at_caller(alone, stuck, lambda get: get(b""))
    over.set()
    thread.join()
    assert "greenlets" in seen.doubt
    assert not look_at_caller(alone, Stuck(), lambda get: get(b"")).doubt


def by_a_computed_name(channel: Any, go: threading.Event) -> None:
    commands.CHANNELS.append(channel)
    if not go.wait(FAR_SECONDS):
        getattr(commands, f"do_{sys.argv[0]}")()


def by_the_name_of_another(channel: Any, go: threading.Event) -> None:
    commands.CHANNELS.append(channel)
    if not go.wait(FAR_SECONDS):
        commands.do_nothing()


@pytest.mark.parametrize("holder", [by_a_computed_name, by_the_name_of_another])
def test_a_function_of_a_module_with_a_computed_name_may_close_the_channel(
    alone: Callable[..., Agent], stuck: Stuck, holder: Any
) -> None:
    assert may_close_the_channel(alone, stuck, holder) is (holder is by_a_computed_name)
    commands.CHANNELS.clear()


def given_to(package: str) -> list[Any]:
    """What code of a package was given by two schedulers: twice one of the test's functions, and one of its own package's."""
    names: dict[str, Any] = {}
    source = "def tidy(): ...\ndef run(see, first, second): see(__import__('sys')._getframe())"
    exec(compile(source, str(Path(grpc.__file__).parent.with_name(package) / "parts.py"), "exec"), names)  # nowhere
    first, second = PACKAGE["LoopScheduler"](), PACKAGE["LoopScheduler"]()
    first.jobs, second.jobs = [names["tidy"], may_close_the_channel], [may_close_the_channel]
    frames: list[FrameType] = []
    names["run"](frames.append, first, second)
    return [one.__name__ for one, _ in callbacks_of_library(frames)]


def test_each_function_that_a_package_was_given_counts_once() -> None:
    assert sorted(given_to("shop")) == ["may_close_the_channel", "tidy"], "a program may be an installed package itself"


def test_a_library_for_databases_was_not_given_its_own_functions() -> None:
    assert given_to("sqlalchemy") == ["may_close_the_channel"]
