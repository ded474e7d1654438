"""A failure hook that ends the process, a loop or a wait is a way out if a party that makes progress may fail."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from stilltrue import Agent
from stilltrue.model import ProcessName
from stilltrue.runtime.introspection.frames import frames_of_threads
from stilltrue.runtime.introspection.threads_and_tasks import Places
from stilltrue.runtime.look.code.failure import may_fail
from stilltrue.runtime.look.progress.stack_ahead import frames_of_task
from stilltrue.runtime.look.ways_out.kinds.failure_hooks import broken_pipe, hooks_of_failure
from stilltrue.runtime.parties import Parties
from tests.client.look.test_leaving_loops import way_out_beside
from tests.client.look.ways_out.closing import FAR_SECONDS, Holder, may_close_the_channel
from tests.client.look.worlds import LoopWorld, Stuck, settle

# -- threads -----------------------------------------------------------------------------------------------------------


def exits(failure: Any) -> None:
    """Exits as far as its code shows; a thread that an earlier test has left may fail meanwhile, and must not end the tests."""
    if failure.thread is exits:
        os._exit(70)


def logs(failure: Any) -> None:
    print(failure)


def tells_the_other(failure: Any) -> None:
    sys.excepthook(failure.exc_type, failure.exc_value, failure.exc_traceback)


def exits_with_three(_: object, value: object, __: object) -> None:
    """As ``exits``."""
    if value is exits_with_three:
        os._exit(70)


def sees_no_progress(_: Any, go: threading.Event) -> None:
    if not go.wait(FAR_SECONDS):
        raise RuntimeError("no progress")


def pings(_: Any, go: threading.Event) -> None:
    while not go.wait(FAR_SECONDS):
        (1).__class__("2")


def pings_and_forgives(_: Any, go: threading.Event) -> None:
    while not go.wait(FAR_SECONDS):
        try:
            (1).__class__("2")
        except Exception as error:  # noqa: BLE001 - as such programs do
            print(error)


def only_waits(_: Any, go: threading.Event) -> None:
    while not go.wait(FAR_SECONDS):
        print("alive")


def inner(go: threading.Event) -> None:
    if not go.wait(FAR_SECONDS):
        raise RuntimeError("no progress")


def forgives_below(_: Any, go: threading.Event) -> None:
    try:
        inner(go)
    except Exception as error:  # noqa: BLE001 - as such programs do
        print(error)


def fails_below(_: Any, go: threading.Event) -> None:
    try:
        inner(go)
    except OSError as error:
        print(error)


@pytest.mark.parametrize("holder", [sees_no_progress, pings, fails_below], ids=lambda one: one.__name__)
def test_a_thread_whose_failure_ends_the_process_is_a_way_out(
    alone: Callable[..., Agent], stuck: Stuck, monkeypatch: pytest.MonkeyPatch, holder: Holder
) -> None:
    monkeypatch.setattr(threading, "excepthook", exits)
    assert may_close_the_channel(alone, stuck, holder)


@pytest.mark.parametrize("holder", [pings_and_forgives, only_waits, forgives_below], ids=lambda one: one.__name__)
def test_a_thread_that_cannot_fail_calls_no_hook(stuck: Stuck, holder: Holder) -> None:
    beside = threading.Thread(target=holder, args=(None, stuck.go))
    beside.start()
    end = time.monotonic() + FAR_SECONDS
    while not _is_waiting(beside):
        assert time.monotonic() < end
    assert not may_fail(frames_of_threads()[beside.ident or 0])
    stuck.go.set()
    beside.join()


def _is_waiting(thread: threading.Thread) -> bool:
    codes = [frame.f_code for frame in frames_of_threads().get(thread.ident or 0, [])]
    return codes[:1] == [threading.Condition.wait.__code__] and threading.Thread.start.__code__ not in codes


def test_a_failure_that_is_only_reported_is_not_a_way_out(
    alone: Callable[..., Agent], stuck: Stuck, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threading, "excepthook", logs)
    assert not may_close_the_channel(alone, stuck, sees_no_progress)


def test_a_failure_hook_may_pass_on_the_exception(
    alone: Callable[..., Agent], stuck: Stuck, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threading, "excepthook", tells_the_other)
    monkeypatch.setattr(sys, "excepthook", exits_with_three)
    assert may_close_the_channel(alone, stuck, sees_no_progress)


@pytest.mark.skipif(sys.platform == "win32", reason="has no SIGPIPE")
@pytest.mark.parametrize(("holder", "expected"), [(pings_and_forgives, True), (only_waits, False)], ids=["calls", "waits"])
def test_a_thread_that_may_write_to_a_closed_pipe_ends_a_process_that_does_not_ignore_it(
    alone: Callable[..., Agent], stuck: Stuck, holder: Holder, expected: bool
) -> None:
    before = signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        beside = threading.Thread(target=holder, args=(None, stuck.go))
        beside.start()
        while not _is_waiting(beside):
            time.sleep(0.01)
        places = Places(Parties(ProcessName("front")))
        hook = broken_pipe(places)
        assert (hook is not None and beside.ident in hook.threads) is expected
        stuck.go.set()
        beside.join()
    finally:
        signal.signal(signal.SIGPIPE, before)
    assert broken_pipe(places) is None


# -- event loops -------------------------------------------------------------------------------------------------------


def ends_all(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """As ``exits``."""
    if context.get("exception") is ends_all:
        os._exit(70)


def leaves(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    sys.exit(str(context))


def cancels(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    for task in asyncio.all_tasks(loop):
        task.cancel()


async def shut_down() -> None:
    for task in asyncio.all_tasks():
        task.cancel()


closing: list[Any] = []


def shuts_down(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    closing.append(loop.create_task(shut_down()))


def tells(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    loop.default_exception_handler(context)


def counts(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    print(len(asyncio.all_tasks(loop)))


async def heartbeat() -> None:
    while True:
        await asyncio.sleep(FAR_SECONDS)
        (1).__class__("2")


async def quiet() -> None:
    while True:
        await asyncio.sleep(FAR_SECONDS)
        print("alive")


async def of_loop(world: LoopWorld, hook: Any, body: Callable[[], Any]) -> bool:
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(hook)
    try:
        return bool(await way_out_beside(world, lambda loop: loop.create_task(body())))
    finally:
        loop.set_exception_handler(None)


@pytest.mark.parametrize("hook", [ends_all, leaves, cancels, shuts_down], ids=lambda one: one.__name__)
async def test_an_exception_handler_that_ends_waits_is_a_way_out_if_code_may_fail(world: LoopWorld, hook: Any) -> None:
    assert await of_loop(world, hook, heartbeat)


@pytest.mark.parametrize(("body", "expected"), [(heartbeat, True), (quiet, False)])
async def test_whether_a_task_may_fail(body: Callable[[], Any], expected: bool) -> None:
    task = asyncio.create_task(body())
    await settle()
    assert may_fail(frames_of_task(task)) is expected
    task.cancel()


@pytest.mark.parametrize("hook", [tells, counts], ids=lambda one: one.__name__)
async def test_an_exception_handler_that_only_logs_is_not_a_way_out(world: LoopWorld, hook: Any) -> None:
    assert not await of_loop(world, hook, heartbeat)


async def test_an_exception_handler_that_cancels_the_waiter_is_a_way_out(world: LoopWorld) -> None:
    waiting: list[Any] = []

    def cancels_it(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        for task in waiting:
            task.cancel()

    async def body(world: LoopWorld) -> None:
        waiting.append(asyncio.current_task())
        await world.stuck(b"")

    loop = asyncio.get_running_loop()
    loop.set_exception_handler(cancels_it)
    beside = loop.create_task(heartbeat())
    try:
        (seen,) = (await world.look(body)).parties
    finally:
        loop.set_exception_handler(None)
        beside.cancel()
    assert seen.ways_out


def fails_then() -> None:
    raise RuntimeError("no progress")


async def test_a_timer_that_may_fail_calls_the_exception_handler() -> None:
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(ends_all)
    try:
        for callback, expected in ((print, False), (fails_then, True)):
            timer = loop.call_later(FAR_SECONDS, callback)
            hooks = [one for one in hooks_of_failure(Places(Parties(ProcessName("front")))) if one.loop is loop]
            assert [one.callbacks for one in hooks if one.callbacks] == ([True] if expected else [])
            timer.cancel()
    finally:
        loop.set_exception_handler(None)
