"""A callback that waits for another call of its own channel waits for the thread that runs it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from typing import Any

import grpc
import pytest

from stilltrue import Agent
from stilltrue.protocol.report import PartyTarget, Report
from tests.client.look.worlds import PATIENCE_SECONDS, report_of, report_when, serving


class World:
    """A client with two channels to a server; a callback of a call on the first is given to :meth:`run`."""

    def __init__(self, client: Agent, address: str, stack: ExitStack) -> None:
        self.client = client
        options = [[("grpc.use_local_subchannel_pool", number)] for number in (0, 1)]
        plain = [stack.enter_context(grpc.insecure_channel(address, options=one)) for one in options]
        self.first: Any = client.channel(plain[0])
        self.second: Any = client.channel(plain[1])
        self.made: list[Any] = []
        self.over, self.given = threading.Event(), threading.Event()

    def run(self, callback: Callable[[World], object]) -> None:
        def ended(_: object) -> None:
            try:
                callback(self)
            finally:
                self.over.set()

        self.first.unary_unary("/s/First").future(b"").add_done_callback(ended)
        self.given.set()  # a callback of a call that is over runs in this thread

    def wait_for(self, call: Any) -> Any:
        """Remember a call, so that the test can end it."""
        self.made.append(call)
        return call


@pytest.fixture
def world(alone: Callable[..., Agent]) -> Iterator[World]:
    go = threading.Event()

    def slow(request: bytes, _: Any) -> bytes:
        assert go.wait(PATIENCE_SECONDS)
        return request

    def first(request: bytes, _: Any) -> bytes:
        assert found.given.wait(PATIENCE_SECONDS)
        return request

    with ExitStack() as stack:
        methods: dict[str, Any] = {"First": first, "Get": lambda request, _: request, "Slow": slow}
        address = stack.enter_context(serving(alone("server"), **methods))
        found = World(alone("client"), address, stack)
        yield found
        go.set()
        for call in found.made:
            call.cancel()
        assert found.over.wait(PATIENCE_SECONDS)


def result_on_its_channel(world: World) -> None:
    with suppress(grpc.FutureCancelledError):
        world.wait_for(world.first.unary_unary("/s/Get").future(b"")).result()


def blocking_on_its_channel(world: World) -> None:
    world.first.unary_unary("/s/Slow")(b"")


def result_on_another_channel(world: World) -> None:
    world.second.unary_unary("/s/Slow").future(b"").result()


def result_in_time(world: World) -> None:
    with suppress(grpc.FutureCancelledError):
        world.wait_for(world.first.unary_unary("/s/Get").future(b"")).result(timeout=PATIENCE_SECONDS)


def _waits_for_itself(report: Report) -> list[str]:
    return [wait.waiter for wait in report.waits if wait.among == (PartyTarget(party=wait.waiter),)]


def test_a_callback_waits_for_the_thread_that_would_pass_on_the_reply(world: World) -> None:
    world.run(result_on_its_channel)
    (waiter,) = _waits_for_itself(report_when(world.client, lambda report: bool(_waits_for_itself(report))))
    assert waiter.startswith("client/thread:")


@pytest.mark.parametrize(
    "callback", [blocking_on_its_channel, result_on_another_channel, result_in_time], ids=lambda one: one.__name__
)
def test_a_callback_whose_wait_another_thread_or_a_timeout_ends_is_not_stuck(world: World, callback: Any) -> None:
    world.run(callback)
    report_when(world.client, lambda report: bool(report.waits))
    assert not _waits_for_itself(report_of(world.client))
