"""Code that may stop an event loop: any that calls the loop's own ``stop``; stopping another object does not count."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from stilltrue.runtime.look.budget import Budget
from stilltrue.runtime.look.progress.stack_ahead import stretches
from stilltrue.runtime.look.ways_out.kinds.loop_stoppers import callback_may_stop, may_stop
from stilltrue.runtime.look.ways_out.reach import Reach

Ahead = Callable[[Any], Iterator[None]]


class Server:
    """Another object that can be stopped, and has the loop."""

    def __init__(self, loop: Any) -> None:
        self.own_loop = loop

    def stop(self) -> None:
        """Does nothing."""


class Life:
    """Stops the loop, or only its server."""

    def __init__(self, loop: Any) -> None:
        self.loop = loop
        self.server = Server(loop)

    def finish(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)

    def finish_the_server(self) -> None:
        self.server.stop()


def halt(one: Any) -> None:
    one.stop()


def by_name(loop: Any) -> Iterator[None]:
    yield
    loop.call_soon_threadsafe(loop.stop)


def by_a_method(loop: Any) -> Iterator[None]:
    life = Life(loop)
    yield
    life.finish()


def by_a_function(loop: Any) -> Iterator[None]:
    yield
    loop.call_soon_threadsafe(halt, loop)


def by_a_variable(loop: Any) -> Iterator[None]:
    stop = loop.stop
    yield
    loop.call_soon_threadsafe(stop)


def by_text(loop: Any) -> Iterator[None]:
    yield
    getattr(loop, "stop")()  # noqa: B009


def of_the_loop_that_runs(_: Any) -> Iterator[None]:
    yield
    asyncio.get_running_loop().stop()


def a_server(loop: Any) -> Iterator[None]:
    server = Server(loop)
    yield
    server.stop()


def a_server_by_a_method(loop: Any) -> Iterator[None]:
    life = Life(loop)
    yield
    life.finish_the_server()


def another_loop(loop: Any) -> Iterator[None]:
    box = SimpleNamespace(loop=loop, other=Server(loop))
    yield
    box.other.stop()


BY_ITS_STOP = (by_name, by_a_method, by_a_function, by_a_variable, by_text, of_the_loop_that_runs)
SOMETHING_ELSE = (a_server, a_server_by_a_method, another_loop)


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    """A loop that does not run."""
    made = asyncio.new_event_loop()
    yield made
    made.close()


def _reach(loop: Any) -> Reach:
    return Reach((loop,), Budget())


@pytest.mark.parametrize("ahead", [*BY_ITS_STOP, *SOMETHING_ELSE], ids=lambda one: one.__name__)
def test_whether_code_ahead_of_a_frame_may_stop_the_loop(loop: asyncio.AbstractEventLoop, ahead: Ahead) -> None:
    begun: Any = ahead(loop)
    next(begun)
    found = [may_stop(one, loop, _reach(loop)) for one in stretches([begun.gi_frame])]
    assert found == [ahead in BY_ITS_STOP]
    begun.close()


def _beats(loop: Any) -> Callable[[], None]:
    def beat() -> None:
        loop.call_later(1.0, beat)

    return beat


@pytest.mark.parametrize(
    ("callback", "expected"),
    [
        (lambda loop: (loop.stop, ()), True),
        (lambda loop: (Life(loop).finish, ()), True),
        (lambda loop: (partial(halt, loop), ()), True),
        (lambda loop: (halt, (loop,)), True),
        (lambda loop: (print, (loop.stop,)), True),
        (lambda loop: (Life(loop).finish_the_server, ()), False),
        (lambda loop: (loop.time, ()), False),
        (lambda loop: (_beats(loop), ()), False),
    ],
    ids=["stop", "method", "partial", "argument", "given", "server", "other", "again"],
)
def test_a_callback_stops_the_loop(loop: asyncio.AbstractEventLoop, callback: Any, expected: bool) -> None:
    assert callback_may_stop(callback(loop), loop, _reach(loop)) is expected
