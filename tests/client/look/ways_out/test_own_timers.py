"""Who cancels only a timer of its own is not a way out, though its code names ``cancel`` and the registry of calls."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from stilltrue import Agent
from stilltrue.runtime.look.code.names import names_of_own_timers
from tests.client.look.worlds import Stuck, look_at_caller

FAR_SECONDS = 60.0
_CALLS: dict[int, Any] = {}


@pytest.fixture
def over() -> Iterator[threading.Event]:
    over = threading.Event()
    yield over
    over.set()
    _CALLS.clear()


def in_a_loop(over: threading.Event) -> None:
    while not over.is_set():
        timer = threading.Timer(FAR_SECONDS, print, ("slow",))
        timer.start()
        over.wait(FAR_SECONDS)
        assert len(_CALLS) < 2
        timer.cancel()


def in_a_block(over: threading.Event) -> None:
    timer = threading.Timer(FAR_SECONDS, print, ("slow",))
    timer.start()
    try:
        over.wait(FAR_SECONDS)
        assert len(_CALLS) < 2
    finally:
        timer.cancel()


def in_a_function(over: threading.Event) -> None:
    while not over.wait(0.01):
        reports()


def reports() -> None:
    timer = threading.Timer(FAR_SECONDS, print, ("slow",))
    timer.start()
    assert len(_CALLS) < 2
    timer.cancel()


def and_a_call(over: threading.Event) -> None:
    timer = threading.Timer(FAR_SECONDS, print, ("slow",))
    timer.start()
    over.wait(FAR_SECONDS)
    timer.cancel()
    for call in _CALLS.values():
        call.cancel()


def by_the_same_name(over: threading.Event) -> None:
    timer: Any = threading.Timer(FAR_SECONDS, print, ("slow",))
    timer.start()
    over.wait(FAR_SECONDS)
    timer.cancel()
    timer = _CALLS.get(0)
    if timer is not None:
        timer.cancel()


def by_the_name_of_a_loop(over: threading.Event) -> None:
    timer: Any
    over.wait(FAR_SECONDS)
    for timer in _CALLS.values():
        timer.cancel()
    timer = threading.Timer(FAR_SECONDS, print)
    timer.cancel()


def by_its_timer(over: threading.Event) -> None:
    timer = threading.Timer(FAR_SECONDS, and_a_call, (over,))
    timer.start()
    over.wait(FAR_SECONDS)
    timer.cancel()


OWN = (in_a_loop, in_a_block, in_a_function)
OTHERS = (and_a_call, by_the_same_name, by_the_name_of_a_loop, by_its_timer)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="its bytecode does not show what a statement consists of")
@pytest.mark.parametrize("beside", [*OWN, *OTHERS], ids=lambda one: one.__name__)
def test_who_cancels_only_its_own_timer_is_not_a_way_out(
    alone: Callable[..., Agent], stuck: Stuck, over: threading.Event, beside: Any
) -> None:
    def caller(get: Any) -> None:
        call = _CALLS[0] = get.future(b"")
        call.result()

    thread = threading.Thread(target=beside, args=(over,))
    thread.start()
    seen = look_at_caller(alone, stuck, caller)
    over.set()
    thread.join()
    assert bool(seen.ways_out) is (beside in OTHERS), seen.ways_out


def of_a_parameter(timer: Any) -> None:
    timer.cancel()
    timer = threading.Timer(1, print)


def of_what_else_it_makes(calls: Any) -> None:
    timer = threading.Timer(1, print).function(calls)
    timer.cancel()


def of_what_it_chooses(calls: Any) -> None:
    makes = threading.Timer if calls else calls.pop
    timer = makes(1, print)
    timer.cancel()


def by_a_text(calls: Any) -> None:
    timer = threading.Timer(1, print)
    timer.cancel()
    getattr(calls, "cancel")()  # noqa: B009


@pytest.mark.parametrize("code", [of_a_parameter, of_what_else_it_makes, of_what_it_chooses, by_a_text])
def test_a_variable_that_may_be_anything_else_is_not_an_own_timer(code: Any) -> None:
    assert not names_of_own_timers(code.__code__)
