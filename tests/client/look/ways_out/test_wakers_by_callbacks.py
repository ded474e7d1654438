"""Who sets an event only when something happens: a signal, a change of a channel, the next round of a loop run in pieces."""

from __future__ import annotations

import asyncio
import functools
import gc
import signal
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import grpc
import pytest

from stilltrue import Agent
from stilltrue.protocol.requests.look import PartyLook
from tests.client.look.worlds import Stuck, look_at_caller

FAR_SECONDS = 600.0
_OPENED: list[threading.Event] = []
_CALLS: list[Any] = []
_SEEN: list[Any] = []
Act = Callable[[], object]


def opens() -> None:
    for one in _OPENED:
        one.set()


def cancels() -> None:
    for call in _CALLS:
        call.cancel()


def counts() -> int:
    return len(_SEEN)


@contextmanager
def _handled(number: signal.Signals, act: Act) -> Iterator[None]:
    before = signal.signal(number, lambda *_: act())
    yield
    signal.signal(number, before)


def when_a_child_ends(act: Act) -> AbstractContextManager[None]:
    return _handled(signal.SIGCHLD, act)


@contextmanager
def when_a_child_ends_by_a_partial(act: Act) -> Iterator[None]:
    def calls(given: Act, *_: object) -> None:
        given()

    before = signal.signal(signal.SIGCHLD, functools.partial(calls, act))
    yield
    signal.signal(signal.SIGCHLD, before)


@contextmanager
def when_processor_time_is_spent(act: Act) -> Iterator[None]:
    with _handled(signal.SIGPROF, act):
        signal.setitimer(signal.ITIMER_PROF, FAR_SECONDS)
        yield
        signal.setitimer(signal.ITIMER_PROF, 0)


@contextmanager
def when_a_channel_changes(act: Act) -> Iterator[None]:
    def changed(_: grpc.ChannelConnectivity) -> None:
        if over:
            act()

    over: list[bool] = []
    with grpc.insecure_channel("127.0.0.1:1") as channel:
        channel.subscribe(changed)
        yield
        channel.unsubscribe(changed)


@contextmanager
def when_a_channel_is_ready(act: Act) -> Iterator[None]:
    def is_ready(_: object) -> None:
        act()

    with grpc.insecure_channel("127.0.0.1:1") as channel:
        ready = grpc.channel_ready_future(channel)
        ready.add_done_callback(is_ready)
        yield
        ready._done_callbacks.clear()  # type: ignore[attr-defined]
        ready.cancel()


class Pump:
    """Runs a loop for a moment now and then, as programs with another main loop do."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.go = threading.Event()

    def run(self) -> None:
        while not self.go.is_set():
            self.loop.run_until_complete(asyncio.sleep(0))
            self.go.wait(0.2)
        self.loop.close()


@contextmanager
def _pumped(begin: Callable[[asyncio.AbstractEventLoop], object]) -> Iterator[None]:
    pump = Pump()
    kept = begin(pump.loop)
    thread = threading.Thread(target=pump.run)
    thread.start()
    yield
    pump.go.set()
    thread.join()
    del kept


def when_a_task_of_a_loop_run_in_pieces_goes_on(act: Act) -> AbstractContextManager[None]:
    async def later() -> None:
        await asyncio.sleep(FAR_SECONDS)
        act()

    return _pumped(lambda loop: loop.create_task(later()))


def by_a_timer_of_a_loop_run_in_pieces(act: Act) -> AbstractContextManager[None]:
    return _pumped(lambda loop: loop.call_later(FAR_SECONDS, act))


@contextmanager
def by_a_task_of_trio(act: Act) -> Iterator[None]:
    trio: Any = pytest.importorskip("trio")
    up, over = threading.Event(), list[Any]()

    async def later() -> None:
        await trio.sleep(FAR_SECONDS)
        act()

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(later)
            over.extend((trio.lowlevel.current_trio_token(), nursery.cancel_scope.cancel))
            up.set()
            await trio.sleep_forever()

    thread = threading.Thread(target=trio.run, args=(main,))
    thread.start()
    assert up.wait(FAR_SECONDS)
    yield
    token, cancel = over
    token.run_sync_soon(cancel)
    thread.join()


class Kept:
    """Something that others keep."""


@contextmanager
def _dropping(kept: Any) -> Iterator[None]:
    over = threading.Event()
    thread = threading.Thread(target=_drops, args=([kept], over))
    thread.start()
    del kept
    yield
    over.set()
    thread.join()


def _drops(kept: list[Any], over: threading.Event) -> None:
    over.wait(FAR_SECONDS)
    kept.clear()


def when_an_object_is_finalized(act: Act) -> AbstractContextManager[None]:
    kept = Kept()
    weakref.finalize(kept, act)
    return _dropping(kept)


_REFS: list[Any] = []


@contextmanager
def when_garbage_is_collected(act: Act) -> Iterator[None]:
    def collected(*_: object) -> None:
        if over:
            act()

    over: list[bool] = []
    gc.callbacks.append(collected)
    yield
    gc.callbacks.remove(collected)


EVERY = (
    when_a_child_ends,
    when_a_child_ends_by_a_partial,
    when_processor_time_is_spent,
    when_a_channel_changes,
    when_a_channel_is_ready,
    when_a_task_of_a_loop_run_in_pieces_goes_on,
    by_a_timer_of_a_loop_run_in_pieces,
    by_a_task_of_trio,
    when_an_object_is_finalized,
    when_garbage_is_collected,
)


def _look_while(alone: Callable[..., Agent], stuck: Stuck, acting: AbstractContextManager[object]) -> PartyLook:
    """The look, within ``acting``, at a caller whose call another thread cancels once an event is set."""
    opened = threading.Event()

    def waits() -> None:
        opened.wait()
        cancels()

    def caller(get: Any) -> None:
        _CALLS.append(get.future(b""))
        _CALLS[-1].result()

    other = threading.Thread(target=waits)
    other.start()
    _OPENED.append(opened)
    with acting:
        seen = look_at_caller(alone, stuck, caller)
    _OPENED.clear()
    _CALLS.clear()
    opened.set()
    other.join()
    return seen


@pytest.mark.skipif(sys.platform == "win32", reason="this system has no such signals")
@pytest.mark.parametrize("act", [opens, cancels, counts])
@pytest.mark.parametrize("when", EVERY, ids=lambda one: one.__name__)
def test_who_will_set_the_event_after_which_another_cancels_is_a_way_out(
    alone: Callable[..., Agent], stuck: Stuck, when: Callable[[Act], AbstractContextManager[None]], act: Act
) -> None:
    seen = _look_while(alone, stuck, when(act))
    assert bool(seen.ways_out) is (act is not counts), seen.ways_out


class Opens:
    """Opens when it is dropped."""

    def __del__(self) -> None:
        opens()


class Counts:
    """Counts when it is dropped."""

    def __del__(self) -> None:
        counts()


def whose_reference_opens() -> Kept:
    kept = Kept()
    _REFS.append(weakref.ref(kept, lambda _: opens()))
    return kept


@pytest.mark.parametrize("kind", [Opens, whose_reference_opens, Counts])
def test_who_drops_an_object_whose_finalizer_sets_the_event_is_a_way_out(
    alone: Callable[..., Agent], stuck: Stuck, kind: Callable[[], Any]
) -> None:
    seen = _look_while(alone, stuck, _dropping(kind()))
    assert bool(seen.ways_out) is (kind is not Counts), seen.ways_out
