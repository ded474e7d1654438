"""A task that another thread has woken without telling its loop stands still until anything else wakes the loop."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from stilltrue import Agent
from stilltrue.protocol.requests.stacks import StandingParty
from stilltrue.runtime.look.standing.sleeping_loops import NOT_TOLD
from stilltrue.runtime.look.standing.stacks import Stacks

PATIENCE_SECONDS = 30.0


class Bridge:
    """Passes items from a driver's thread to a task."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.items: asyncio.Queue[int | None] = asyncio.Queue()
        self.event = asyncio.Event()
        self.future = self.loop.create_future()

    async def take(self, kind: str) -> None:
        waits: dict[str, Any] = {"queue": self.items.get, "event": self.event.wait}
        await (self.future if kind == "future" else waits[kind]())

    def give(self, kind: str) -> Callable[[], None]:
        """What brings it."""
        gives: dict[str, Callable[[], None]] = {
            "queue": lambda: self.items.put_nowait(1),
            "event": self.event.set,
            "future": lambda: self.future.set_result(1),
        }
        return gives[kind]

    def has(self, kind: str) -> bool:
        """Whether it has been brought."""
        return {"queue": not self.items.empty(), "event": self.event.is_set(), "future": self.future.done()}[kind]


@contextlib.contextmanager
def waiting(kind: str) -> Iterator[Bridge]:
    """A task ``consumer``, which waits on a loop of its own; ends with the block."""
    made: list[Bridge] = []
    ready = threading.Event()

    async def run() -> None:
        bridge = Bridge()
        made.append(bridge)
        asyncio.current_task().set_name("consumer")  # type: ignore[union-attr]
        bridge.loop.call_soon(ready.set)
        await bridge.take(kind)

    thread = threading.Thread(target=lambda: asyncio.run(run()), daemon=True)
    thread.start()
    assert ready.wait(PATIENCE_SECONDS)
    time.sleep(0.1)  # until the loop sleeps
    yield made[0]
    with contextlib.suppress(RuntimeError):  # the loop has ended
        made[0].loop.call_soon_threadsafe(int if made[0].has(kind) else made[0].give(kind))
    thread.join(PATIENCE_SECONDS)
    assert not thread.is_alive()


def consumers(agent: Agent) -> list[StandingParty]:
    found = Stacks(agent.live, agent.parties, 0.2).find(1).parties
    return [one for one in found if one.party.endswith("task:consumer")]


@pytest.mark.parametrize("kind", ["queue", "event", "future"])
def test_a_task_that_another_thread_has_woken_is_unexplained_while_its_loop_sleeps(
    alone: Callable[..., Agent], kind: str
) -> None:
    agent = alone("one")
    with waiting(kind) as bridge:
        assert [one.blocked_in == NOT_TOLD for one in consumers(agent)] == [False]
        bridge.give(kind)()
        (one,) = consumers(agent)
        assert (one.blocked_in, one.unexplained, one.never_idle, one.owes_reply) == (NOT_TOLD, True, True, False)
        assert "in Bridge.take" in one.stack[0]


def test_a_task_whose_loop_is_told_goes_on(alone: Callable[..., Agent]) -> None:
    agent = alone("one")
    with waiting("event") as bridge:
        bridge.loop.call_soon_threadsafe(bridge.event.set)
        assert consumers(agent) == []


def test_a_loop_that_wakes_now_and_then_does_not_sleep(alone: Callable[..., Agent]) -> None:
    agent = alone("one")
    with waiting("event") as bridge:
        bridge.loop.call_soon_threadsafe(_ticks, bridge.loop)
        time.sleep(0.1)
        bridge.event.set()
        assert consumers(agent) == []


def _ticks(loop: asyncio.AbstractEventLoop) -> None:
    loop.call_later(0.02, _ticks, loop)
