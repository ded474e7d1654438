"""Who may end the process ends every wait in it: a watchdog that sees no progress, an alarm that nobody handles."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

from stilltrue import Agent
from tests.client.look.closing import FAR_SECONDS, Holder, interrupted, may_close_the_channel
from tests.client.look.worlds import Stuck


class Watchdog:
    """Ends the process when nothing goes on, so that something else starts it again."""

    def __init__(self, go: threading.Event) -> None:
        self.go = go
        self.beats = 0

    def watch(self) -> None:
        """Look now and then."""
        while not self.go.wait(FAR_SECONDS):
            if not self.beats:
                self.bark()

    def bark(self) -> None:
        """End it."""
        os._exit(1)


def exits(_: Any, go: threading.Event) -> None:
    if not go.wait(FAR_SECONDS):
        os._exit(1)


def watches(_: Any, go: threading.Event) -> None:
    Watchdog(go).watch()


def kills_itself(_: Any, go: threading.Event) -> None:
    if not go.wait(FAR_SECONDS):
        os.kill(os.getpid(), signal.SIGTERM)


def becomes_another(_: Any, go: threading.Event) -> None:
    if not go.wait(FAR_SECONDS):
        os.execv(sys.executable, [sys.executable, "-c", ""])


def aborts(_: Any, go: threading.Event) -> None:
    if not go.wait(FAR_SECONDS):
        os.abort()


def aborts_a_call(_: Any, go: threading.Event) -> None:
    context: Any = None
    if not go.wait(FAR_SECONDS) and os.environ:
        context.abort(1, "no")


def kills_another(_: Any, go: threading.Event) -> None:
    child = 0
    if not go.wait(FAR_SECONDS):
        os.kill(child, signal.SIGTERM)


def exits_when_interrupted(_: Any, go: threading.Event) -> None:
    while not go.is_set():
        try:
            interrupted(go)
        except KeyboardInterrupt:
            os._exit(1)


def exits_without_its_parent(_: Any, go: threading.Event) -> None:
    parent = os.getppid()
    while not go.wait(FAR_SECONDS):
        if os.getppid() != parent:
            os._exit(1)


@pytest.mark.parametrize("holder", [exits, watches, kills_itself, becomes_another, aborts], ids=lambda one: one.__name__)
def test_who_may_end_the_process_is_a_way_out(alone: Callable[..., Agent], stuck: Stuck, holder: Holder) -> None:
    assert may_close_the_channel(alone, stuck, holder)


@pytest.mark.parametrize(
    "holder", [kills_another, aborts_a_call, exits_when_interrupted, exits_without_its_parent], ids=lambda one: one.__name__
)
def test_who_ends_another_or_ends_with_its_parent_is_none(alone: Callable[..., Agent], stuck: Stuck, holder: Holder) -> None:
    assert not may_close_the_channel(alone, stuck, holder)


def test_a_timer_that_ends_the_process_is_a_way_out(alone: Callable[..., Agent], stuck: Stuck) -> None:
    timer = threading.Timer(FAR_SECONDS, os._exit, (1,))
    timer.daemon = True
    timer.start()
    try:
        assert may_close_the_channel(alone, stuck, lambda _, go: interrupted(go))
    finally:
        timer.cancel()


def test_an_alarm_that_nobody_handles_is_a_way_out(alone: Callable[..., Agent], stuck: Stuck) -> None:
    before = signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(int(FAR_SECONDS))
    try:
        assert may_close_the_channel(alone, stuck, lambda _, go: interrupted(go))
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
