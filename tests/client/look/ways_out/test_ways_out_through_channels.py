"""Whoever makes a call runs the interceptors that its channel was given: one that cancels other calls is a way out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import grpc
import grpc.aio
import pytest

from stilltrue import Agent
from tests.client.look.ways_out.test_ways_out_through_libraries import cancel_all, count_all, later, ways_out_beside
from tests.client.look.worlds import Stuck


class Breaker(grpc.UnaryUnaryClientInterceptor):
    """Cancels all other calls before each call."""

    def intercept_unary_unary(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        """gRPC's interface."""
        cancel_all()
        return continuation(client_call_details, request)


class Counter(grpc.UnaryUnaryClientInterceptor):
    """Only counts them."""

    def intercept_unary_unary(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        """gRPC's interface."""
        count_all()
        return continuation(client_call_details, request)


class AioBreaker(grpc.aio.UnaryUnaryClientInterceptor):
    """Like the first, on a loop."""

    async def intercept_unary_unary(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        """gRPC's interface."""
        cancel_all()
        return await continuation(client_call_details, request)


def through_a_channel(interceptor: Any, make: Callable[[Any], Any]) -> Callable[[], object]:
    channel = make(interceptor)
    return lambda: channel.unary_unary("/t.T/Tick")(b"")


def through_a_method(interceptor: Any, make: Callable[[Any], Any]) -> Callable[[], object]:
    tick = make(interceptor).unary_unary("/t.T/Tick")
    return lambda: tick(b"")


def through_a_table(interceptor: Any, make: Callable[[Any], Any]) -> Callable[[], object]:
    channels = {"stock": make(interceptor)}
    return lambda: channels["stock"].unary_unary("/t.T/Tick")(b"")


def of_threads(agent: Agent) -> Callable[[Any], Any]:
    return lambda one: agent.channel(grpc.intercept_channel(grpc.insecure_channel("127.0.0.1:1"), one))


def innermost_of_two(agent: Agent) -> Callable[[Any], Any]:
    return lambda one: grpc.intercept_channel(agent.channel(grpc.insecure_channel("127.0.0.1:1")), Counter(), one)


@pytest.mark.parametrize("through", [through_a_channel, through_a_method, through_a_table])
@pytest.mark.parametrize("where", [of_threads, innermost_of_two])
@pytest.mark.parametrize(("kind", "expected"), [(Breaker, True), (Counter, False)])
def test_who_makes_a_call_later_runs_its_interceptors(
    alone: Callable[..., Agent], stuck: Stuck, through: Any, where: Any, kind: type, expected: bool
) -> None:
    act = through(kind(), where(alone("shop")))
    found = ways_out_beside(alone, stuck, later(act))
    assert bool(found) is expected, found


def test_so_does_who_makes_one_on_a_loop(alone: Callable[..., Agent], stuck: Stuck) -> None:
    async def make() -> Any:
        return grpc.aio.insecure_channel("127.0.0.1:1", interceptors=[AioBreaker()])

    loop = asyncio.new_event_loop()
    channel = loop.run_until_complete(make())
    found = ways_out_beside(alone, stuck, later(lambda: loop.run_until_complete(channel.unary_unary("/t.T/Tick")(b""))))
    loop.run_until_complete(channel.close())
    loop.close()
    assert found
