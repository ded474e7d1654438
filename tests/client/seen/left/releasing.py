"""A lock that one thread has while another waits for it, and what the look says of who is beside them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from tests.client.look.worlds import look_at, of
from tests.client.seen.conftest import Front

FAR_SECONDS = 600.0
Beside = Callable[[Any, threading.Event], object]
"""What a thread does that is given the lock, and an event that says when it may go on."""


@dataclass(frozen=True)
class Besides:
    """What threads do beside the holder: some of it releases the lock, some looks alike and does not."""

    releasing: list[Beside] = field(default_factory=list)
    harmless: list[Beside] = field(default_factory=list)

    def gives_back(self, function: Beside) -> Beside:
        """A thread that releases the lock when it is told to go on."""
        self.releasing.append(function)
        return function

    def does_not(self, function: Beside) -> Beside:
        """A thread that looks alike and releases no lock."""
        self.harmless.append(function)
        return function


def is_way_out(front: Front, beside: Beside, lock: Any) -> bool:
    """Whether a thread that is given the lock of another, and does this, is a way out of who waits for it."""
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
    """The ways out of who waits for the lock that name ``by``, while another has it."""
    report = front.report_when_still("waiter", "holder", *([by] if by == "beside" else []))
    look = of(look_at(front.agent, report), "front/thread:waiter")
    assert look.unchanged
    assert lock.locked()
    return [way.text for way in look.ways_out if by in way.text]


def hold(front: Front, lock: Any) -> None:
    """Let a thread take the lock and wait for a call, and another wait for the lock."""

    def holds() -> None:
        with suppress(RuntimeError), lock:
            front.get(b"")

    def take() -> None:
        with lock:
            pass

    front.hold(holds)
    front.start("waiter", take)
