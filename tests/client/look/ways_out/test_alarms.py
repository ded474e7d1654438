"""Timers of the system that interrupt the main thread: those that repeat do so if their handler may raise an exception."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

import grpc
import pytest

from stilltrue import Agent
from stilltrue.protocol.requests.look import PartyLook
from tests.client.look.ways_out.closing import FAR_SECONDS
from tests.client.look.worlds import Stuck, look_at, of, report_of, serving

LATE: list[int] = []


def raises(*_: object) -> None:
    if LATE:
        raise TimeoutError


def has_a_function_raise(*_: object) -> None:
    raises()


def exits(*_: object) -> None:
    if LATE:
        sys.exit(1)


class Clock:
    """Ticks."""

    def check(self) -> None:
        """Raise if it is late."""
        if LATE:
            raise TimeoutError

    def tick(self, *_: object) -> None:
        """Look at the time."""
        self.check()


def beats(*_: object) -> None:
    print(len(LATE))


@pytest.mark.parametrize("timer", [signal.ITIMER_REAL, signal.ITIMER_PROF], ids=["real", "processor"])
@pytest.mark.parametrize(
    ("handler", "expected"), [(raises, True), (has_a_function_raise, True), (exits, True), (Clock().tick, True), (beats, False)]
)
def test_a_timer_that_repeats_interrupts_the_main_thread_if_its_handler_may_raise(
    alone: Callable[..., Agent], stuck: Stuck, timer: int, handler: Any, expected: bool
) -> None:
    number = signal.SIGALRM if timer == signal.ITIMER_REAL else signal.SIGPROF
    before = signal.signal(number, handler)
    signal.setitimer(timer, FAR_SECONDS, FAR_SECONDS)
    front, back = alone("front"), alone("back")
    seen: list[PartyLook] = []

    def looks() -> None:
        stuck.wait_for_callers()
        seen.append(of(look_at(front, report_of(front)), "front/thread:MainThread"))
        stuck.go.set()

    try:
        threading.Thread(target=looks).start()
        with serving(back, Get=stuck) as address, grpc.insecure_channel(address) as channel:
            get: Any = front.channel(channel).unary_unary("/s/Get")
            get(b"")
    finally:
        signal.setitimer(timer, 0)
        signal.signal(number, before)
    assert [way.text.startswith(number.name) for way in seen[0].ways_out] == [True] * expected
