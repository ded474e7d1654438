"""What the system does to a process: timers that repeat interrupt its main thread if their handler may raise an exception."""

from __future__ import annotations

import fcntl
import os
import resource
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
from tests.client.look.worlds import Stuck, look_at, look_at_caller, of, report_of, serving

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
    signal.setitimer(timer, FAR_SECONDS, FAR_SECONDS)
    try:
        seen = seen_with(alone, stuck, number, handler)
    finally:
        signal.setitimer(timer, 0)
    assert [way.text.startswith(number.name) for way in seen.ways_out] == [True] * expected


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("announces", [True, False])
def test_a_descriptor_that_announces_what_arrives_interrupts_the_main_thread(
    alone: Callable[..., Agent], stuck: Stuck, announces: bool
) -> None:
    reader, writer = os.pipe()
    if announces:
        fcntl.fcntl(reader, fcntl.F_SETFL, os.O_ASYNC)
    try:
        seen = seen_with(alone, stuck, signal.SIGIO, raises)
    finally:
        os.close(reader)
        os.close(writer)
    assert any(way.text.startswith("SIGIO, which interrupts") for way in seen.ways_out) is announces


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("limited", [True, False])
def test_a_limit_of_processor_time_is_doubt(alone: Callable[..., Agent], stuck: Stuck, limited: bool) -> None:
    before = resource.getrlimit(resource.RLIMIT_CPU)
    if limited:
        resource.setrlimit(resource.RLIMIT_CPU, (10**6, before[1]))
    try:
        seen = look_at_caller(alone, stuck, lambda get: get(b""))
    finally:
        resource.setrlimit(resource.RLIMIT_CPU, before)
    assert ("RLIMIT_CPU" in seen.doubt) is limited, seen.doubt


def seen_with(alone: Callable[..., Agent], stuck: Stuck, number: signal.Signals, handler: Any) -> PartyLook:
    """What a look sees of the main thread, in a call, if it has this handler."""
    before = signal.signal(number, handler)
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
        signal.signal(number, before)
    return seen[0]
