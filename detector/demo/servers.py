"""A server process of a scene: performs the steps of its methods on a thread pool or on asyncio."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Sequence
from concurrent import futures
from typing import Any

import grpc
import grpc.aio

from detector.demo.scene import All, Call, First, Gate, Locked, Service, Spread, Step, Work
from stilltrue import Agent

HOST = "127.0.0.1"


def path_of(method: str) -> tuple[str, str]:
    """The process that serves ``service.Method``, and the method's gRPC path."""
    service, _, name = method.partition(".")
    return service, f"/shop.{service.capitalize()}/{name}"


class ThreadService:
    """Serves with a bounded thread pool, like most gRPC Python servers."""

    def __init__(self, agent: Agent, name: str, service: Service) -> None:
        """Listens at once, on a free loopback port."""
        self._agent = agent
        self._service = service
        self._channels: dict[str, grpc.Channel] = {}
        self._gates: dict[str, threading.Event] = {}
        self._locks: dict[str, Any] = {}
        self._in_flight: set[Any] = set()
        pool = agent.pool(futures.ThreadPoolExecutor(max_workers=service.workers), name="workers")
        self._server = grpc.server(pool, interceptors=[agent.server_interceptor()])
        handlers: dict[str, Any] = {
            method: grpc.unary_unary_rpc_method_handler(self._behaviour(method)) for method in service.methods
        }
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(f"shop.{name.capitalize()}", handlers),))
        self.port = self._server.add_insecure_port(f"{HOST}:0")
        self._server.start()

    def dial(self, addresses: dict[str, str]) -> None:
        """Connect to the other processes."""
        self._channels = {n: self._agent.channel(grpc.insecure_channel(address)) for n, address in addresses.items()}

    def obey(self, command: dict[str, Any]) -> None:
        """``{"open": gate}`` opens a gate for present and future waiters."""
        self._gate(command["open"]).set()

    def stop(self) -> None:
        """Stop serving."""
        self._server.stop(grace=None)
        self._agent.close()

    def _gate(self, name: str) -> threading.Event:
        return self._gates.setdefault(name, threading.Event())

    def _lock(self, step: Locked) -> Any:
        if step.name not in self._locks:
            many = step.permits > 1
            self._locks[step.name] = (
                self._agent.Semaphore(step.permits, name=step.name) if many else self._agent.Lock(name=step.name)
            )
        return self._locks[step.name]

    def _behaviour(self, method: str) -> Any:
        steps = self._service.methods[method]
        for step in steps:
            if isinstance(step, Locked):
                self._lock(step)

        def behave(request: bytes, _context: grpc.ServicerContext) -> bytes:
            self._perform(steps, request)
            return b"done"

        return behave

    def _perform(self, steps: Sequence[Step], request: bytes) -> None:
        for step in steps:
            match step:
                case Work(seconds=seconds):
                    time.sleep(seconds * random.uniform(0.8, 1.2))
                case Call(method=method, timeout=timeout):
                    self._call(method, request, timeout)
                case All(methods=methods):
                    for reply in [self._stub(method).future(request) for method in methods]:
                        reply.result()
                case First():
                    raise ValueError("hedged calls are for services on asyncio (workers=0)")
                case Locked(steps=inner):
                    with self._lock(step):
                        self._perform(inner, request)
                case Gate(name=name):
                    self._gate(name).wait()
                case Spread(methods=methods, copies=copies):
                    self._spread(methods, copies, int(request))

    def _stub(self, method: str) -> Any:
        service, path = path_of(method)
        return self._channels[service].unary_unary(path)

    def _call(self, method: str, request: bytes, timeout: float | None) -> None:
        try:
            self._stub(method)(request, timeout=timeout)
        except grpc.RpcError as error:
            if timeout is None or error.code() is not grpc.StatusCode.DEADLINE_EXCEEDED:
                raise

    def _spread(self, methods: Sequence[str], copies: int, strength: int) -> None:
        if strength > 0:
            for method in random.sample(methods, copies):
                call = self._stub(method).future(str(strength - 1).encode())
                self._in_flight.add(call)  # gRPC cancels unreferenced calls
                call.add_done_callback(self._in_flight.discard)


class AioService:
    """Serves on asyncio, with the loop on a separate thread."""

    def __init__(self, agent: Agent, name: str, service: Service) -> None:
        """Listens at once, on a free loopback port."""
        self._agent = agent
        self._service = service
        self._name = name
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._gates: dict[str, asyncio.Event] = {}
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True, name="loop").start()
        self.port = self._do(self._listen())

    def _do(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    async def _listen(self) -> int:
        self._server = grpc.aio.server(interceptors=[self._agent.aio_server_interceptor()])
        methods = self._service.methods
        handlers: dict[str, Any] = {method: grpc.unary_unary_rpc_method_handler(self._behaviour(method)) for method in methods}
        generic = grpc.method_handlers_generic_handler(f"shop.{self._name.capitalize()}", handlers)
        self._server.add_generic_rpc_handlers((generic,))
        port = self._server.add_insecure_port(f"{HOST}:0")
        await self._server.start()
        return port

    def dial(self, addresses: dict[str, str]) -> None:
        """Connect to the other processes."""

        async def channels() -> dict[str, grpc.aio.Channel]:
            return {n: self._agent.channel(grpc.aio.insecure_channel(address)) for n, address in addresses.items()}

        self._channels = self._do(channels())

    def obey(self, command: dict[str, Any]) -> None:
        """``{"open": gate}`` opens a gate for present and future waiters."""
        self._loop.call_soon_threadsafe(self._gate(command["open"]).set)

    def stop(self) -> None:
        """Stop serving."""
        self._do(self._server.stop(None))
        self._agent.close()

    def _gate(self, name: str) -> asyncio.Event:
        return self._gates.setdefault(name, asyncio.Event())

    def _behaviour(self, method: str) -> Any:
        steps = self._service.methods[method]

        async def behave(request: bytes, _context: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
            for step in steps:
                await self._perform(step, request)
            return b"done"

        return behave

    async def _perform(self, step: Step, request: bytes) -> None:
        match step:
            case Work(seconds=seconds):
                await asyncio.sleep(seconds * random.uniform(0.8, 1.2))
            case Call(method=method, timeout=timeout):
                await self._call(method, request, timeout)
            case All(methods=methods):
                await asyncio.gather(*(self._stub(method)(request) for method in methods))
            case First(methods=methods):
                await self._first([asyncio.ensure_future(self._call(method, request, None)) for method in methods])
            case Gate(name=name):
                await self._gate(name).wait()
            case _:
                raise ValueError(f"a service on asyncio cannot perform {step}")

    def _stub(self, method: str) -> Any:
        service, path = path_of(method)
        return self._channels[service].unary_unary(path)

    async def _call(self, method: str, request: bytes, timeout: float | None) -> None:
        try:
            await self._stub(method)(request, timeout=timeout)
        except grpc.aio.AioRpcError as error:
            if timeout is None or error.code() is not grpc.StatusCode.DEADLINE_EXCEEDED:
                raise

    @staticmethod
    async def _first(calls: list[asyncio.Future[None]]) -> None:
        done, late = await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
        for call in late:
            call.cancel()
        await asyncio.gather(*done)
