"""Fixtures of the tests of the second look: a stuck method, and a front on an event loop that calls it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator

import pytest

from stilltrue import Agent
from tests.client.look.activity import Gate
from tests.client.look.worlds import LoopWorld, Stuck


@pytest.fixture
def stuck() -> Iterator[Stuck]:
    stuck = Stuck()
    yield stuck
    stuck.go.set()


@pytest.fixture
async def world(alone: Callable[..., Agent]) -> AsyncIterator[LoopWorld]:
    world = LoopWorld(alone("front"), alone("back"))
    await world.start()
    yield world
    await world.stop()


@pytest.fixture
def gate() -> Iterator[Gate]:
    """A place where test work stands until the test ends."""
    gate = Gate()
    yield gate
    gate.go.set()
