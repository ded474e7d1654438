"""Work that counts besides a handler: callbacks from the end of their call on, and later interceptors."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from stilltrue import Agent
from stilltrue.model import Activity
from tests.client.shells import SHELLS, World, make_world

Alone = Callable[..., Agent]


@pytest.fixture(params=SHELLS)
def shell(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def world(shell: str, alone: Alone) -> Iterator[World]:
    world = make_world(shell, lambda name: alone(name, reactive=True))
    yield world
    world.go.set()
    world.settle()
    assert [world.report(agent).activity for agent in world.agents] == [Activity.IDLE] * 3
    world.close()


@pytest.mark.parametrize("shell", ["threads"], indirect=True)  # on a loop, a running callback holds up the loop
def test_a_pending_done_callback_keeps_the_process_active(world: World) -> None:
    running, go = threading.Event(), threading.Event()

    def work(_: Any) -> None:
        running.set()
        assert go.wait(10)

    world.go.set()
    call = world.start("Do", b"x")
    call.inner.add_done_callback(work)
    assert call.result() == b"x"
    assert world.report(world.client).activity is Activity.ACTIVE
    assert running.wait(10)
    assert world.report(world.client).activity is Activity.ACTIVE
    go.set()
    world.until(lambda: world.report(world.client).activity is Activity.IDLE)
    call.inner.add_done_callback(lambda _: None)
    assert world.report(world.client).activity is Activity.IDLE


@pytest.mark.parametrize("shell", ["threads"], indirect=True)
def test_a_pending_context_callback_keeps_the_process_active(world: World) -> None:
    running, go = threading.Event(), threading.Event()

    def work() -> None:
        running.set()
        assert go.wait(10)

    def handle(request: bytes, context: Any) -> bytes:
        assert context.add_callback(work)
        return request

    world.onward = handle
    assert world.start("Front", b"x").result() == b"x"
    assert running.wait(10)
    assert world.report(world.front).activity is Activity.ACTIVE
    go.set()
    world.until(lambda: world.report(world.front).activity is Activity.IDLE)
