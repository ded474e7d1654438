"""Call objects, channels and multi-callables pass for gRPC's own, whatever an inner interceptor returns."""

from __future__ import annotations

import copy
import gc
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import grpc
import grpc.aio
import pytest

from stilltrue import Agent
from tests.client.shells import KINDS, SyncWorld, World, make_world

Alone = Callable[..., Agent]


@pytest.fixture
def world(alone: Alone) -> Iterator[World]:
    world = make_world("threads", alone)
    world.go.set()
    yield world
    world.settle()
    world.close()


def failing(request: bytes, context: Any) -> Any:
    context.abort(grpc.StatusCode.NOT_FOUND, "not here")


def test_the_error_that_is_raised_is_the_call_as_in_gRPC(world: World) -> None:  # noqa: N802 - its name
    world.onward = failing
    future = world.start("Front", b"x").inner
    with pytest.raises(grpc.RpcError) as raised:
        future.result()
    error: Any = raised.value
    assert error is future
    assert future.exception() is future
    assert (error.code(), error.details()) == (grpc.StatusCode.NOT_FOUND, "not here")
    stream = world.start("Many", b"x", timeout=-1).inner
    with pytest.raises(grpc.RpcError) as raised:
        next(stream)
    assert raised.value is stream
    assert stream.code() is grpc.StatusCode.DEADLINE_EXCEEDED


def test_the_classes_are_those_of_gRPC(world: World) -> None:  # noqa: N802 - its name
    plain = grpc.insecure_channel("127.0.0.1:1")
    recorded: Any = world.client.channel(plain)
    assert isinstance(recorded, type(plain))
    assert isinstance(recorded, grpc.Channel)
    for kind in set(KINDS.values()):
        assert isinstance(getattr(recorded, kind)("/t.T/X"), type(getattr(plain, kind)("/t.T/X")))
    call = world.start("Do", b"x").inner
    assert all(isinstance(call, kind) for kind in (grpc.RpcError, grpc.Call, grpc.Future, type(call._inner)))
    assert call.result() == b"x"


def test_a_copy_of_a_channel_works_on_the_same_channel(world: World) -> None:
    assert isinstance(world, SyncWorld)
    channel = world.client.channel(grpc.insecure_channel(world.addresses[world.server]))
    twin: Any = copy.copy(channel)
    assert twin.unary_unary("/t.T/Do")(b"x") == b"x"
    assert twin._inner is channel._inner  # type: ignore[attr-defined]
    channel.close()


@pytest.mark.parametrize("metadata", [5, "ab", ["a"], [None], [("a", 1)], [("a", "b", "c")], {"a": "b"}])
def test_invalid_metadata_is_refused_as_by_gRPC(world: World, metadata: Any) -> None:  # noqa: N802 - its name
    def refusal(channel: grpc.Channel) -> str:
        call: Any = channel.unary_unary("/t.T/Do")
        with pytest.raises(Exception) as raised:  # noqa: PT011 - which one it is, is the question
            call(b"x", metadata=metadata)
        return repr(raised.value)

    with grpc.insecure_channel(world.addresses[world.server]) as plain:
        expected = refusal(plain)
        assert refusal(world.client.channel(plain)) == expected


class Generating(grpc.UnaryStreamClientInterceptor):
    """Turns a stream into a generator, as many interceptors do."""

    def intercept_unary_stream(self, continuation: Any, details: Any, request: Any) -> Any:
        yield from continuation(details, request)


class Answering(grpc.UnaryUnaryClientInterceptor):
    """Answers by itself, with an object that only has ``result()``."""

    def intercept_unary_unary(self, continuation: Any, details: Any, request: Any) -> Any:
        return SimpleNamespace(result=lambda timeout=None: b"cached")


def test_a_generator_from_an_inner_interceptor_is_a_stream(world: World) -> None:
    plain = grpc.insecure_channel(world.addresses[world.server])
    channel: Any = world.client.channel(grpc.intercept_channel(plain, Generating()))
    stream: Any = channel.unary_stream("/t.T/Many")(b"x")
    assert next(stream) == b"x"
    assert [made.received for made in world.report(world.client).made] == [1]
    assert list(stream) == [b"x"]
    assert world.report(world.client).made == ()
    stream = channel.unary_stream("/t.T/Many")(b"x")
    assert next(stream) == b"x"
    del stream
    gc.collect()
    world.until(lambda: [made.doubtful for made in world.report(world.client).made] == [True])
    plain.close()


def test_an_object_from_an_inner_interceptor_is_passed_on_and_settles_its_call(world: World) -> None:
    plain = grpc.insecure_channel(world.addresses[world.server])
    channel: Any = world.client.channel(grpc.intercept_channel(plain, Answering()))
    future: Any = channel.unary_unary("/t.T/Do").future(b"x")
    assert future.result() == b"cached"
    assert [made.doubtful for made in world.report(world.client).made] == [True]
    plain.close()


def test_a_call_that_cannot_be_wrapped_is_returned_unchanged(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as broken:
        broken.setattr("stilltrue.sync.call.RecordedCall", lambda *_: 1 / 0)
        call = world.start("Do", b"x").inner
    assert type(call).__module__ == "grpc._channel"
    assert call.result() == b"x"
    assert world.client.live.faults == 1
    world.client.live.faults = 0


async def test_a_call_that_fails_before_it_is_sent_is_not_outstanding_on_a_loop(alone: Alone) -> None:
    client = alone("client")
    async with client.channel(grpc.aio.insecure_channel("127.0.0.1:1")) as channel:
        call: Any = channel.unary_unary("/t.T/Do")
        with pytest.raises(Exception, match=r"execute_batch|INVALID_METADATA"):
            await call(b"x", metadata=[("UPPER", "case")])
        assert [made.state.name for made in client.live.recorder.calls_made.values()] == []


@pytest.mark.parametrize("metadata", [5, ["a"], [("a", 1)], {"a": "b"}])
async def test_invalid_metadata_is_refused_on_a_loop_too(alone: Alone, metadata: Any) -> None:
    async def refusal(channel: Any) -> str:
        async with channel:
            with pytest.raises(Exception) as raised:  # noqa: PT011 - which one it is, is the question
                await channel.unary_unary("/t.T/Do")(b"x", metadata=metadata)
            return repr(raised.value)

    plain = await refusal(grpc.aio.insecure_channel("127.0.0.1:1"))
    assert await refusal(alone("client").channel(grpc.aio.insecure_channel("127.0.0.1:1"))) == plain
