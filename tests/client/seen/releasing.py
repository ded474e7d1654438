"""A lock that one thread has while another waits for it, and what the look says of who is beside them."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from tests.client.look.worlds import look_at, of
from tests.client.seen.conftest import Front


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

    front.start("holder", holds)
    front.wait_for_callers()
    front.start("waiter", take)
