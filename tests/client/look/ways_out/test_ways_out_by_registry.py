"""Code that sweeps a registry of calls in flight may cancel them; code that only counts them may not."""

from __future__ import annotations

import asyncio
import contextlib
import operator
import threading
import weakref
from collections.abc import Callable
from typing import Any

import grpc
import pytest

from stilltrue import Agent
from tests.client.look.worlds import (
    LoopWorld,
    Stuck,
    holders,
    look_at_caller,
)

FAR_SECONDS = 60.0


class Entry:
    """A call in flight, in a registry."""

    def __init__(self, call: Any) -> None:
        self.call = call

    def look_at(self) -> None:
        """Cancel it; a global function has the same name."""
        self.call.cancel()

    def tell(self) -> bool:
        """Report it."""
        return bool(self.call.done())


class InFlight:
    """A registry of calls in flight, swept now and then."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.weak: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()

    def add(self, call: Any) -> None:
        """Keep a call."""
        self.entries = [Entry(call)]
        self.weak[1] = call

    def sweep(self) -> None:
        """Cancel what took too long."""
        for entry in self.entries:
            entry.look_at()

    def count(self) -> int:
        """Return their number."""
        return sum(entry.tell() for entry in self.entries)


_IN_FLIGHT = InFlight()


def _sweeps(go: threading.Event, held: InFlight) -> None:
    go.wait(FAR_SECONDS)
    held.sweep()


def _sweeps_the_global(go: threading.Event, _: object) -> None:
    go.wait(FAR_SECONDS)
    _IN_FLIGHT.sweep()


def _cancels_by_name(go: threading.Event, held: InFlight) -> None:
    go.wait(FAR_SECONDS)
    for entry in held.entries:
        operator.methodcaller("cancel")(entry.call)


def _cancels_those_that_live(go: threading.Event, held: weakref.WeakValueDictionary[int, Any]) -> None:
    go.wait(FAR_SECONDS)
    for call in held.values():
        call.cancel()


def _counts(go: threading.Event, held: InFlight) -> None:
    go.wait(FAR_SECONDS)
    held.count()


def _counts_the_global(go: threading.Event, _: object) -> None:
    go.wait(FAR_SECONDS)
    _IN_FLIGHT.count()


@pytest.mark.parametrize(
    ("sweeper", "expected"),
    [
        (_sweeps, ["-"]),
        (_sweeps_the_global, ["-"]),
        (_cancels_by_name, ["-"]),
        (_cancels_those_that_live, ["-"]),
        (_counts, []),
        (_counts_the_global, []),
    ],
)
def test_code_that_sweeps_a_registry_of_calls_may_cancel_them(
    alone: Callable[..., Agent], stuck: Stuck, sweeper: Callable[[threading.Event, Any], None], expected: list[str]
) -> None:
    registry = _IN_FLIGHT if sweeper in {_sweeps_the_global, _counts_the_global} else InFlight()
    held = registry.weak if sweeper is _cancels_those_that_live else registry
    other = threading.Thread(target=sweeper, args=(stuck.go, held if registry is not _IN_FLIGHT else None))

    def caller(get: Any) -> None:
        call = get.future(b"")
        registry.add(call)
        with contextlib.suppress(grpc.FutureCancelledError):
            call.result()

    other.start()
    assert holders(look_at_caller(alone, stuck, caller)) == expected
    other.join()


def test_a_timer_that_sweeps_a_registry_may_cancel_them(alone: Callable[..., Agent], stuck: Stuck) -> None:
    def caller(get: Any) -> None:
        call = get.future(b"")
        _IN_FLIGHT.add(call)
        timer = threading.Timer(FAR_SECONDS, lambda: _IN_FLIGHT.sweep())  # noqa: PLW0108 - its code is what names the method
        timer.start()
        call.result()
        timer.cancel()

    assert holders(look_at_caller(alone, stuck, caller)) == ["-"]


_HOOKS: list[Callable[[], object]] = []


async def _wind_down() -> None:
    for hook in _HOOKS:
        hook()


async def _count_hooks() -> int:
    return len([])


async def _winds_down_later() -> None:
    await asyncio.sleep(FAR_SECONDS)
    await _wind_down()


async def _counts_later() -> None:
    await asyncio.sleep(FAR_SECONDS)
    await _count_hooks()


async def _winds_down_when_nobody_asks() -> None:
    await asyncio.Event().wait()
    await _wind_down()


@pytest.mark.parametrize(
    ("beside", "expected"), [(_winds_down_later, True), (_counts_later, False), (_winds_down_when_nobody_asks, False)]
)
async def test_code_that_runs_a_modules_hooks_may_cancel_the_calls_they_carry(
    world: LoopWorld, beside: Callable[[], Any], expected: bool
) -> None:
    async def body(world: LoopWorld) -> None:
        task = asyncio.ensure_future(world.stuck(b""))

        def give_up(held: Any = task) -> None:
            held.cancel()

        _HOOKS.append(give_up)
        del give_up
        other = asyncio.create_task(beside(), name="beside")
        await asyncio.wait([task])
        other.cancel()

    look = await world.look(body)
    _HOOKS.clear()
    open_ones = [way.text for one in look.parties for way in one.ways_out if way.party is None]
    assert any("beside" in text for text in open_ones) is expected
