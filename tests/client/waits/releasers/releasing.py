"""A lock that one thread holds while another waits for it, and the look's result about further threads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from tests.client.look.worlds import look_at, of
from tests.client.waits.conftest import Front

FAR_SECONDS = 600.0
Beside = Callable[[Any, threading.Event], object]
"""The function of a thread, called with the lock and an event that lets it go on."""


@dataclass(frozen=True)
class Besides:
    """Functions for further threads: some release the lock, some are similar but do not."""

    releasing: list[Beside] = field(default_factory=list)
    harmless: list[Beside] = field(default_factory=list)

    def gives_back(self, function: Beside) -> Beside:
        """A thread that releases the lock when it goes on."""
        self.releasing.append(function)
        return function

    def does_not(self, function: Beside) -> Beside:
        """A similar thread that does not release the lock."""
        self.harmless.append(function)
        return function


def is_way_out(front: Front, beside: Beside, lock: Any) -> bool:
    """Whether a thread that runs this with another thread's lock is a way out for the waiter."""
    go, given = threading.Event(), [lock]

    def act() -> None:
        with suppress(RuntimeError):
            beside(given.pop(), go)

    hold(front, lock)
    front.start("beside", act)
    found = looked_at(front, lock)
    go.set()
    front.let_go()
    return bool(found)


def looked_at(front: Front, lock: Any, by: str = "beside") -> list[str]:
    """The ways out for the lock's waiter that name ``by``, while another thread holds the lock."""
    report = front.report_when_still("waiter", "holder", *([by] if by == "beside" else []))
    look = of(look_at(front.agent, report), "front/thread:waiter")
    assert look.unchanged
    assert lock.locked()
    return [way.text for way in look.ways_out if by in way.text]


def hold(front: Front, lock: Any) -> None:
    """Start a thread that acquires the lock and waits for a call, and another that waits for the lock."""

    def holds() -> None:
        with suppress(RuntimeError), lock:
            front.get(b"")

    def take() -> None:
        with lock:
            pass

    front.hold(holds)
    front.start("waiter", take)
