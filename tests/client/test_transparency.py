"""An application cannot tell whether the agent is attached: the same story with plain gRPC and agents, compared exactly."""

from __future__ import annotations

import asyncio
import copy
import functools
import pickle
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import grpc
import grpc.aio
import pytest

from stilltrue import Agent
from stilltrue.model import SnapshotId

Alone = Callable[..., Agent]
SECRET = ("secret", "given")
LEFT = threading.Event()  # the caller of ``many`` has cancelled


def seen(metadata: Any) -> list[tuple[str, Any]]:
    """Metadata without stamps, as the application sees it."""
    return sorted((key, value) for key, value in metadata or () if key not in {"stilltrue-stamp", "user-agent"})


# -- the service, for threads and for a loop -------------------------------------------------------------------------------


def one(request: bytes, context: Any) -> bytes:
    context.send_initial_metadata((("first", "word"),))
    context.set_trailing_metadata((("last", "word"), ("bin-bin", b"\x00")))
    if request == b"abort":
        context.abort(grpc.StatusCode.FAILED_PRECONDITION, "not now")
    if request == b"code":
        context.set_code(grpc.StatusCode.NOT_FOUND)
        context.set_details("not here")
    if request == b"raise":
        raise ValueError("a fault of the application")
    if request == b"metadata":
        return repr(seen(context.invocation_metadata())).encode()
    return request


def many(request: bytes, context: Any) -> Iterator[bytes]:
    """Three items; for ``c`` one, and then the caller's cancellation.

    If a generator has more items than fit when its call is cancelled, grpc.aio never resumes it and leaves its
    worker waiting for ever, with an agent or without.
    """
    context.set_trailing_metadata((("last", "word"),))
    LEFT.clear()
    for number in range(3):
        yield request + b"%d" % number
        if request == b"c":
            LEFT.wait(10)
            return
    if request == b"abort":
        context.abort(grpc.StatusCode.ABORTED, "enough")


def collect(requests: Iterator[bytes], context: Any) -> bytes:
    return b"+".join(requests)


def chat(requests: Iterator[bytes], context: Any) -> Iterator[bytes]:
    for request in requests:
        yield request
        yield request.upper()


async def aio_one(request: bytes, context: Any) -> bytes:
    await context.send_initial_metadata((("first", "word"),))
    context.set_trailing_metadata((("last", "word"), ("bin-bin", b"\x00")))
    if request == b"abort":
        await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "not now")
    if request == b"code":
        context.set_code(grpc.StatusCode.NOT_FOUND)
        context.set_details("not here")
    if request == b"raise":
        raise ValueError("a fault of the application")
    if request == b"metadata":
        return repr(seen(context.invocation_metadata())).encode()
    return request


async def aio_many(request: bytes, context: Any) -> AsyncIterator[bytes]:
    context.set_trailing_metadata((("last", "word"),))
    for number in range(3):
        yield request + b"%d" % number
    if request == b"abort":
        await context.abort(grpc.StatusCode.ABORTED, "enough")


async def aio_collect(requests: AsyncIterator[bytes], context: Any) -> bytes:
    return b"+".join([request async for request in requests])


async def aio_chat(requests: Any, context: Any) -> None:
    while (request := await context.read()) is not grpc.aio.EOF:
        await context.write(request)
        await context.write(request.upper())


def handlers(one: Any, many: Any, collect: Any, chat: Any) -> list[grpc.GenericRpcHandler]:
    methods: dict[str, Any] = {
        "One": grpc.unary_unary_rpc_method_handler(one),
        "Many": grpc.unary_stream_rpc_method_handler(many),
        "Collect": grpc.stream_unary_rpc_method_handler(collect),
        "Chat": grpc.stream_stream_rpc_method_handler(chat),
    }
    return [grpc.method_handlers_generic_handler("t.T", methods)]


SYNC = handlers(one, many, collect, chat)
AIO = handlers(aio_one, aio_many, aio_collect, aio_chat)


# -- the story, by threads ---------------------------------------------------------------------------------------------


@contextmanager
def serving(interceptors: list[Any], pool: ThreadPoolExecutor | None = None) -> Iterator[str]:
    server = grpc.server(pool or ThreadPoolExecutor(4), handlers=SYNC, interceptors=interceptors)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}"
    server.stop(None).wait()


def ending(call: Any) -> list[Any]:
    return [call.code(), call.details(), seen(call.initial_metadata()), seen(call.trailing_metadata())]


def failing(make: Callable[[], Any]) -> list[Any]:
    with pytest.raises(grpc.RpcError) as raised:
        make()
    assert isinstance(raised.value, grpc.Call)
    return ending(raised.value)


def story(channel: grpc.Channel) -> list[Any]:
    call: Any = channel.unary_unary("/t.T/One")
    stream: Any = channel.unary_stream("/t.T/Many")
    gather: Any = channel.stream_unary("/t.T/Collect")
    talk: Any = channel.stream_stream("/t.T/Chat")
    told: list[Any] = [call(b"x"), call(b"metadata", metadata=[SECRET]), call(b"x", timeout=10, wait_for_ready=True)]
    reply, ended = call.with_call(b"y", compression=grpc.Compression.Gzip)
    told += [reply, isinstance(ended, grpc.Call), isinstance(ended, grpc.Future), *ending(ended)]
    told += [failing(functools.partial(call, word)) for word in (b"abort", b"code", b"raise")]
    unknown: Any = channel.unary_unary("/t.T/Unknown")
    told.append(failing(lambda: unknown(b"")))
    told.append(failing(lambda: call(b"x", timeout=-1)))
    future = call.future(b"f")
    called = threading.Event()
    future.add_done_callback(lambda known: called.set() if known is future else None)
    told += [future.result(), future.result(timeout=1), future.exception(), future.traceback(), called.wait(10)]
    told += [future.done(), future.running(), future.cancelled(), future.is_active(), future.cancel(), *ending(future)]
    future = call.future(b"abort")
    told += [type(future.exception()).__mro__.index(grpc.RpcError) > 0, *ending(future), failing(future.result)]
    items = stream(b"s")
    told += [isinstance(items, grpc.Call), next(items), list(items), *ending(items)]
    items = stream(b"abort")
    told += [failing(lambda: list(items)), *ending(items)]
    items = stream(b"c")
    told += [next(items), items.cancel(), items.cancelled(), items.code(), items.details()]
    LEFT.set()
    told += [gather(iter([b"1", b"2"])), gather.with_call(iter([b"3"]))[0], gather.future(iter([b"4", b"5"])).result()]
    told += [list(talk(iter([b"a", b"b"]))), list(talk(iter([])))]
    return told


def test_calls_from_threads_behave_the_same_with_agents(alone: Alone) -> None:
    client, server = alone("client"), alone("server")
    with serving([]) as address, grpc.insecure_channel(address) as channel:
        plain = story(channel)
    with (
        serving([server.server_interceptor()], server.pool(ThreadPoolExecutor(4))) as address,
        client.channel(grpc.insecure_channel(address)) as channel,
    ):
        assert story(channel) == plain
        assert story(grpc.intercept_channel(channel, Adding())) == [
            told.replace(b"[(", b"[('added', 'yes'), (") if isinstance(told, bytes) and told.startswith(b"[(") else told
            for told in plain
        ]
    nothing_left(client, server)


class Adding(grpc.UnaryUnaryClientInterceptor):
    """Another library's interceptor, outside ours."""

    def intercept_unary_unary(self, continuation: Any, details: Any, request: Any) -> Any:
        class Details(grpc.ClientCallDetails):
            method, timeout, credentials = details.method, details.timeout, details.credentials
            wait_for_ready, compression = details.wait_for_ready, details.compression
            metadata = (("added", "yes"), *(details.metadata or ()))

        return continuation(Details(), request)


async def all_served(agent: Agent) -> None:
    """Wait until all handlers have ended: a cancelled sync handler ends in its own thread."""
    for _ in range(1_000):
        agent.live.catch_up()
        if not agent.live.recorder.calls_served:
            return
        await asyncio.sleep(0.01)
    raise AssertionError(agent.live.recorder.calls_served)


def nothing_left(*agents: Agent) -> None:
    """Check that all calls are settled and served, and that no failure was counted."""
    for agent in agents:
        agent.live.catch_up()
        report = agent.live.marked(SnapshotId(1))
        assert report is not None
        assert [made for made in report.made if not made.doubtful] == []
        assert (report.served, report.waits, report.holds) == ((), (), ())
        assert agent.live.faults == 0


# -- the story, on a loop ----------------------------------------------------------------------------------------------


@asynccontextmanager
async def aio_serving(interceptors: list[Any], found: list[grpc.GenericRpcHandler]) -> AsyncIterator[str]:
    server = grpc.aio.server(ThreadPoolExecutor(4), handlers=found, interceptors=interceptors)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield f"127.0.0.1:{port}"
    await server.stop(None)


async def aio_ending(call: Any) -> list[Any]:
    initial, trailing = await call.initial_metadata(), await call.trailing_metadata()
    return [await call.code(), await call.details(), seen(initial), seen(trailing)]


async def aio_failing(awaitable: Any) -> list[Any]:
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await awaitable
    error = raised.value
    return [error.code(), error.details(), seen(error.initial_metadata()), seen(error.trailing_metadata())]


async def letters(text: str) -> AsyncIterator[bytes]:
    for letter in text:
        yield letter.encode()


async def aio_story(channel: grpc.aio.Channel) -> list[Any]:
    call: Any = channel.unary_unary("/t.T/One")
    stream: Any = channel.unary_stream("/t.T/Many")
    gather: Any = channel.stream_unary("/t.T/Collect")
    talk: Any = channel.stream_stream("/t.T/Chat")
    told: list[Any] = [await call(b"x"), await call(b"metadata", metadata=grpc.aio.Metadata(SECRET))]
    told += [await call(b"x", timeout=10, wait_for_ready=True, compression=grpc.Compression.Gzip)]
    ended = call(b"y")
    done = asyncio.Event()
    ended.add_done_callback(lambda known: done.set() if known is ended else None)
    told += [isinstance(ended, grpc.aio.UnaryUnaryCall), await ended, await ended, *await aio_ending(ended)]
    await asyncio.wait_for(done.wait(), 10)
    told += [ended.done(), ended.cancelled(), ended.cancel(), ended.time_remaining()]
    told += [await aio_failing(call(word)) for word in (b"abort", b"code", b"raise")]
    unknown: Any = channel.unary_unary("/t.T/Unknown")
    told.append(await aio_failing(unknown(b"")))
    told.append((await aio_failing(call(b"x", timeout=-1)))[0])
    items = stream(b"s")
    told += [isinstance(items, grpc.aio.UnaryStreamCall), [item async for item in items], *await aio_ending(items)]
    items = stream(b"s")
    told += [await items.read(), await items.read(), await items.read(), await items.read() is grpc.aio.EOF]
    items = stream(b"abort")
    told += [await aio_failing(_all(items)), *await aio_ending(items)]
    items = stream(b"c")
    told += [await items.read(), items.cancel(), items.cancelled(), await items.code()]
    LEFT.set()
    told += [await gather(letters("12")), await gather(iter([b"3", b"4"]))]
    writing = gather()
    await writing.write(b"5")
    await writing.done_writing()
    told += [await writing, isinstance(writing, grpc.aio.StreamUnaryCall)]
    told += [[item async for item in talk(letters("ab"))], [item async for item in talk(letters(""))]]
    talking = talk()
    await talking.write(b"z")
    told += [await talking.read(), await talking.read(), await talking.done_writing(), await talking.read() is grpc.aio.EOF]
    cancelled = call(b"x")
    cancelled.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    return told


async def _all(items: Any) -> list[Any]:
    return [item async for item in items]


@pytest.mark.parametrize("found", [AIO, SYNC], ids=["coroutines", "sync handlers"])
async def test_calls_on_a_loop_behave_the_same_with_agents(alone: Alone, found: list[grpc.GenericRpcHandler]) -> None:
    client, server = alone("client"), alone("server")
    async with aio_serving([], found) as address, grpc.aio.insecure_channel(address) as channel:
        plain = await aio_story(channel)
    async with (
        aio_serving([server.aio_server_interceptor()], found) as address,
        client.channel(grpc.aio.insecure_channel(address)) as channel,
    ):
        assert await aio_story(channel) == plain
    await all_served(server)
    nothing_left(client, server)


async def test_instrumented_and_plain_ends_understand_each_other(alone: Alone) -> None:
    client, server = alone("client"), alone("server")
    with serving([server.server_interceptor()]) as address:
        async with client.channel(grpc.aio.insecure_channel(address)) as channel:
            call: Any = channel.unary_unary("/t.T/One")
            assert await call(b"x") == b"x"
    nothing_left(client, server)


def test_a_failing_agent_fails_open(alone: Alone, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving([]) as address, grpc.insecure_channel(address) as channel:
        plain = story(channel)
    client, server = alone("client"), alone("server")
    with (
        serving([server.server_interceptor()], server.pool(ThreadPoolExecutor(4))) as address,
        client.channel(grpc.insecure_channel(address)) as channel,
    ):
        for step in ("sent", "settled", "arrived", "started", "replied", "waits", "resumes"):
            with monkeypatch.context() as broken:
                broken.setattr(type(client.live.recorder), step, lambda *_, **__: 1 / 0)
                assert story(channel) == plain
    assert client.live.faults
    assert server.live.faults


@pytest.mark.parametrize("make", [grpc.insecure_channel, lambda target: grpc.insecure_channel(target).unary_unary("/a.A/B")])
def test_an_unpicklable_object_gives_the_same_error(alone: Alone, make: Callable[[str], Any]) -> None:
    plain = make("127.0.0.1:1")
    channel = alone("here").channel(grpc.insecure_channel("127.0.0.1:1"))
    recorded = channel if isinstance(plain, grpc.Channel) else channel.unary_unary("/a.A/B")
    for take in (pickle.dumps, copy.deepcopy):
        said = []
        for thing in (plain, recorded):
            with pytest.raises(TypeError) as raised:
                take(thing)
            said.append(str(raised.value))
        assert said[0] == said[1]
    assert type(copy.copy(recorded)) is type(recorded)
