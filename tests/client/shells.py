"""The same service and client on each of the agent's shells, so that each test of behaviour is written once.

``threads``: grpc on both sides. ``loop``: grpc.aio with coroutines. ``pool of a loop``: grpc.aio with sync handlers in its
migration pool. With every shell, the test blocks in its own thread.
"""

from __future__ import annotations

import asyncio
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any

import grpc
import grpc.aio

from stilltrue import Agent
from stilltrue.model import SnapshotId
from stilltrue.protocol.report import Report

PATIENCE_SECONDS = 30.0
Alone = Callable[..., Agent]
KINDS = {
    "Do": "unary_unary",
    "Many": "unary_stream",
    "Collect": "stream_unary",
    "Chat": "stream_stream",
    "Front": "unary_unary",
}


def handlers(**behaviours: Any) -> list[grpc.GenericRpcHandler]:
    """The service ``t.T`` with these behaviours by method."""
    methods = {name: getattr(grpc, f"{KINDS[name]}_rpc_method_handler")(behaviour) for name, behaviour in behaviours.items()}
    return [grpc.method_handlers_generic_handler("t.T", methods)]


class Go:
    """Releases stuck handlers of any shell."""

    def __init__(self) -> None:
        self.thread = threading.Event()
        self.loop: asyncio.AbstractEventLoop | None = None
        self.task = asyncio.Event()

    def set(self) -> None:
        self.thread.set()
        if self.loop is not None:
            self.loop.call_soon_threadsafe(self.task.set)


class SyncService:
    """For threads. ``many`` and ``chat`` get stuck after their first item, ``do`` at once; ``front`` calls the server."""

    def __init__(self, world: World) -> None:
        self.world = world

    def do(self, request: bytes, context: Any) -> bytes:
        assert self.world.go.thread.wait(PATIENCE_SECONDS)
        return request

    def many(self, request: bytes, context: Any) -> Iterator[bytes]:
        yield request
        assert self.world.go.thread.wait(PATIENCE_SECONDS)
        yield request

    def collect(self, requests: Iterator[bytes], context: Any) -> bytes:
        return b"".join(requests)

    def chat(self, requests: Iterator[bytes], context: Any) -> Iterator[bytes]:
        yield from requests

    def front(self, request: bytes, context: Any) -> bytes:
        answer = self.world.onward(request, context)
        assert isinstance(answer, bytes)
        return answer

    def handlers(self) -> list[grpc.GenericRpcHandler]:
        return handlers(Do=self.do, Many=self.many, Collect=self.collect, Chat=self.chat, Front=self.front)


class AioService:
    """The same for a loop."""

    def __init__(self, world: World) -> None:
        self.world = world

    async def do(self, request: bytes, context: Any) -> bytes:
        await self.world.go.task.wait()
        return request

    async def many(self, request: bytes, context: Any) -> AsyncIterator[bytes]:
        yield request
        await self.world.go.task.wait()
        yield request

    async def collect(self, requests: AsyncIterator[bytes], context: Any) -> bytes:
        return b"".join([request async for request in requests])

    async def chat(self, requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        async for request in requests:
            yield request

    async def front(self, request: bytes, context: Any) -> bytes:
        answer = await self.world.onward(request, context)
        assert isinstance(answer, bytes)
        return answer

    def handlers(self) -> list[grpc.GenericRpcHandler]:
        return handlers(Do=self.do, Many=self.many, Collect=self.collect, Chat=self.chat, Front=self.front)


class Call(ABC):
    """A call in progress, for a blocking test."""

    inner: Any

    @abstractmethod
    def result(self, timeout: float | None = None) -> Any: ...
    @abstractmethod
    def next(self) -> Any: ...
    @abstractmethod
    def told(self, method: str) -> Any:
        """What the call object tells by one of its methods about the end: blocks until then."""

    def trailing(self) -> Any:
        return self.told("trailing_metadata")

    @abstractmethod
    def cancel(self) -> None: ...
    @abstractmethod
    def ask(self) -> Future[Any]:
        """Start waiting for the result, or the rest of the stream, in another thread or task."""


class World(ABC):
    """A client, a server with one worker (or one loop), and a front that calls the server; calls are stuck until ``go``."""

    def __init__(self, alone: Alone, **options: Any) -> None:
        self.client, self.server, self.front = alone("client"), alone("server"), alone("front")
        self.agents = [self.client, self.server, self.front]
        self.addresses: dict[Agent, str] = {}
        self.options = options
        self.go = Go()
        self.snapshot = 0
        self.onward: Callable[[bytes, Any], Any] = lambda request, context: request
        self.askers = ThreadPoolExecutor(4, "asker")

    @abstractmethod
    def start(self, method: str, request: Any, *, agent: Agent | None = None, **options: Any) -> Call:
        """Start a call to the server by ``agent`` (default: the client), not yet awaited; ``Front`` goes to the front."""

    @abstractmethod
    def stub(self, agent: Agent, method: str) -> Any:
        """A multi-callable of the server, of the shell's own kind, recorded by ``agent``."""

    def report(self, agent: Agent) -> Report:
        self.snapshot += 1
        agent.live.catch_up()
        report = agent.live.marked(SnapshotId(self.snapshot))
        assert report is not None
        return report

    def until(self, found: Callable[[], Any]) -> Any:
        """Poll ``found`` until it returns a true value, and return it; there is no event to wait for."""
        end = time.monotonic() + PATIENCE_SECONDS
        while not (result := found()):
            assert time.monotonic() < end, "it did not happen in time"
            time.sleep(0.002)
        return result

    def served(self) -> list[tuple[bool, str]]:
        """For each call at the server: whether it is being served, and its pool."""
        return [(call.serving, call.pool) for call in self.report(self.server).served]

    def settle(self) -> None:
        """Wait until all calls are settled and served, and check that no failure was counted."""
        for agent in self.agents:
            self.until(partial(self._is_quiet, agent))
            assert agent.live.faults == 0

    def _is_quiet(self, agent: Agent) -> bool:
        report = self.report(agent)
        waits = [wait for wait in report.waits if not wait.uncoloured]  # a stream's end can leave a gRPC thread stuck
        return not report.served and not waits and all(made.doubtful for made in report.made)

    @abstractmethod
    def close(self) -> None: ...


class SyncCall(Call):
    def __init__(self, world: World, inner: Any, streams: bool) -> None:
        self.world, self.inner, self.streams = world, inner, streams

    def result(self, timeout: float | None = None) -> Any:
        return list(self.inner) if self.streams else self.inner.result(timeout)

    def next(self) -> Any:
        return next(self.inner)

    def told(self, method: str) -> Any:
        return getattr(self.inner, method)()

    def cancel(self) -> None:
        self.inner.cancel()

    def ask(self) -> Future[Any]:
        return self.world.askers.submit(self.result)


class SyncWorld(World):
    """``threads``."""

    def __init__(self, alone: Alone, **options: Any) -> None:
        super().__init__(alone, **options)
        self.servers = []
        for agent, workers in ((self.server, 1), (self.front, 2)):
            pool = agent.pool(ThreadPoolExecutor(workers), "workers")
            server = grpc.server(pool, SyncService(self).handlers(), [agent.server_interceptor()], **options)
            self.addresses[agent] = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
            server.start()
            self.servers.append(server)
        self.channels: list[grpc.Channel] = []

    def stub(self, agent: Agent, method: str) -> Any:
        target = self.front if method == "Front" else self.server
        plain = grpc.insecure_channel(self.addresses[target])
        self.channels.append(plain)
        return getattr(agent.channel(plain), KINDS[method])(f"/t.T/{method}")

    def start(self, method: str, request: Any, *, agent: Agent | None = None, **options: Any) -> Call:
        stub = self.stub(agent or self.client, method)
        streams = KINDS[method].endswith("stream")
        return SyncCall(self, stub(request, **options) if streams else stub.future(request, **options), streams)

    def close(self) -> None:
        self.go.set()
        for channel in self.channels:
            channel.close()
        for server in self.servers:
            server.stop(None).wait()
        self.askers.shutdown()


class AioCall(Call):
    def __init__(self, world: AioWorld, make: Callable[[], Any], streams: bool) -> None:
        self.world = world

        async def begin() -> Any:
            return make()

        self.inner = world.run(begin())
        self.items: Any = self.inner.__aiter__() if streams else None

    def result(self, timeout: float | None = None) -> Any:
        return self.world.run(self._all(), timeout)

    async def _all(self) -> Any:
        return await self.inner if self.items is None else [item async for item in self.items]

    def next(self) -> Any:
        assert self.items is not None
        return self.world.run(self._next())

    async def _next(self) -> Any:
        return await self.items.__anext__()

    def told(self, method: str) -> Any:
        return self.world.run(getattr(self.inner, method)())

    def cancel(self) -> None:
        self.world.loop.call_soon_threadsafe(self.inner.cancel)

    def ask(self) -> Future[Any]:
        return asyncio.run_coroutine_threadsafe(self._all(), self.world.loop)


class AioWorld(World):
    """``loop``, and with ``sync_handlers`` ``pool of a loop``."""

    def __init__(self, alone: Alone, *, sync_handlers: bool = False, **options: Any) -> None:
        super().__init__(alone, **options)
        self.loop = asyncio.new_event_loop()
        self.go.loop = self.loop
        threading.Thread(target=self.loop.run_forever, daemon=True).start()
        self.sync_handlers = sync_handlers
        self.servers: list[Any] = []
        self.channels: list[Any] = []
        self.run(self._serve())

    async def _serve(self) -> None:
        service = SyncService(self) if self.sync_handlers else AioService(self)
        for agent, workers in ((self.server, 1), (self.front, 2)):
            pool = agent.pool(ThreadPoolExecutor(workers), "workers")
            server = grpc.aio.server(pool, service.handlers(), [agent.aio_server_interceptor()], **self.options)
            self.addresses[agent] = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
            await server.start()
            self.servers.append(server)

    def run(self, coroutine: Any, timeout: float | None = None) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(timeout or PATIENCE_SECONDS)

    def stub(self, agent: Agent, method: str) -> Any:
        """A stub for the loop; sync handlers get one for threads."""
        return self._stub(agent, method, grpc) if self.sync_handlers else self.run(self._stub_on_loop(agent, method))

    async def _stub_on_loop(self, agent: Agent, method: str) -> Any:
        return self._stub(agent, method, grpc.aio)

    def _stub(self, agent: Agent, method: str, module: Any) -> Any:
        plain = module.insecure_channel(self.addresses[self.front if method == "Front" else self.server])
        self.channels.append(plain)
        return getattr(agent.channel(plain), KINDS[method])(f"/t.T/{method}")

    def start(self, method: str, request: Any, *, agent: Agent | None = None, **options: Any) -> Call:
        def make() -> Any:
            return self._stub(agent or self.client, method, grpc.aio)(request, **options)

        return AioCall(self, make, KINDS[method].endswith("stream"))

    def close(self) -> None:
        self.go.set()
        self.run(self._close())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.askers.shutdown()

    async def _close(self) -> None:
        for channel in self.channels:
            closing = channel.close()
            if closing is not None:
                await closing
        for server in self.servers:
            await server.stop(None)
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:  # grpc.aio leaves a pool thread waiting for the task of a cancelled stream
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)


def make_world(shell: str, alone: Alone, **options: Any) -> World:
    """Make a world on this shell."""
    if shell == "threads":
        return SyncWorld(alone, **options)
    return AioWorld(alone, sync_handlers=shell == "pool of a loop", **options)


SHELLS = ("threads", "loop", "pool of a loop")
