"""Programs of ``healthy`` with idioms of real gRPC programs: each looks stuck for a moment, but none is.

``desk`` has a cycle of waits that only a watchdog ends; ``clerk`` releases its limiter in done callbacks, which also call;
``relay`` forwards the metadata of its callers; ``gateway`` has no agent; ``kiosk`` ends connections by age; the ``stall``
processes share one ``POD_NAME`` and one address, and their agents join only after they have begun to serve.
"""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
from collections.abc import Callable, Mapping
from concurrent import futures
from typing import Any

import grpc
import grpc.aio

from detector.demo.servers import HOST, path_of
from stilltrue import Agent

LIMIT = 3
LATE_SECONDS = 0.5
PATIENCE_SECONDS = 0.03
STATS_SECONDS = 0.25
AGE = (("grpc.max_connection_age_ms", 400), ("grpc.max_connection_age_grace_ms", 100))
BALANCED = (("grpc.lb_policy_name", "round_robin"),)
Behaviour = Callable[[bytes, grpc.ServicerContext], bytes]


def handlers(service: str, methods: Mapping[str, Any]) -> grpc.GenericRpcHandler:
    """A handler for the unary methods of a service; requests and replies are bytes."""
    table: dict[str, Any] = {name: grpc.unary_unary_rpc_method_handler(behaviour) for name, behaviour in methods.items()}
    return grpc.method_handlers_generic_handler(f"shop.{service.capitalize()}", table)


class Program:
    """A process of a scene that serves with threads, and calls others. Without an ``agent`` nothing is recorded."""

    def __init__(self, name: str, *, agent: Agent | None, workers: int = 3, port: int = 0, options: Any = ()) -> None:
        """Listens at once; ``port`` 0 picks a free one."""
        self.name = name
        self.agent = agent
        self.channels: dict[str, grpc.Channel] = {}
        pool = futures.ThreadPoolExecutor(workers)
        interceptors = [agent.server_interceptor()] if agent else []
        self.server = grpc.server(agent.pool(pool) if agent else pool, interceptors=interceptors, options=options)
        self.server.add_generic_rpc_handlers((handlers(name, self.methods()),))
        self.port = self.server.add_insecure_port(f"{HOST}:{port}")
        self.server.start()

    def methods(self) -> dict[str, Behaviour]:
        """The methods to serve."""
        return {}

    def dial(self, addresses: dict[str, str]) -> None:
        """Connect to the other processes."""
        plain = {name: grpc.insecure_channel(target, options=BALANCED) for name, target in targets(addresses).items()}
        agent = self.agent
        self.channels = {name: agent.channel(one) for name, one in plain.items()} if agent else plain

    def stub(self, method: str) -> Any:
        """A stub for ``service.Method``."""
        service, path = path_of(method)
        return self.channels[service].unary_unary(path)

    def obey(self, command: dict[str, Any]) -> None:
        """Accepts no commands."""

    def stop(self) -> None:
        """Stop like a terminated pod: finish the calls in progress, and say goodbye to the detector."""
        self.server.stop(grace=1.0).wait()
        if self.agent:
            self.agent.close()


class Kiosk(Program):
    """Ends every connection after a while, as servers behind a load balancer often do."""

    def __init__(self, name: str, port: int) -> None:
        """See :class:`Program`."""
        super().__init__(name, agent=started_agent(name), port=port, options=AGE)

    def methods(self) -> dict[str, Behaviour]:
        """``Sell`` takes 2 ms."""
        return {"Sell": self._sell}

    @staticmethod
    def _sell(request: bytes, _: grpc.ServicerContext) -> bytes:
        time.sleep(0.002)
        return request


class Relay(Program):
    """Forwards the metadata of its callers, including their stamps."""

    def __init__(self, name: str, port: int) -> None:
        """See :class:`Program`."""
        super().__init__(name, agent=started_agent(name), port=port)

    def methods(self) -> dict[str, Behaviour]:
        """``Pass`` calls the kiosk, ``Hold`` calls back the desk."""
        return {"Pass": self._pass, "Hold": self._hold}

    def _pass(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        return reply_or_nothing(self.stub("kiosk.Sell"), request, metadata=list(context.invocation_metadata()))

    def _hold(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        return reply_or_nothing(self.stub("desk.Need"), request, metadata=list(context.invocation_metadata()))


class Gateway(Program):
    """A proxy without an agent that forwards everything, including stamps."""

    def __init__(self, name: str, port: int) -> None:
        """See :class:`Program`."""
        super().__init__(name, agent=None, workers=4, port=port)

    def methods(self) -> dict[str, Behaviour]:
        """``Pass`` calls the relay."""
        return {"Pass": self._pass}

    def _pass(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        return reply_or_nothing(self.stub("relay.Pass"), request, metadata=list(context.invocation_metadata()))


class Stall(Program):
    """One of several processes of a pod behind one address; its agent starts half a second after its server."""

    def __init__(self, name: str, port: int) -> None:
        """See :class:`Program`."""
        os.environ["POD_NAME"] = "stall-0"
        agent = Agent(service="stall", reactive=True)
        self._late = threading.Timer(LATE_SECONDS, agent.start)
        super().__init__(name.partition("-")[0], agent=agent, port=port)
        self._late.start()

    def methods(self) -> dict[str, Behaviour]:
        """``Sell`` calls the kiosk."""
        return {"Sell": self._sell}

    def _sell(self, request: bytes, _: grpc.ServicerContext) -> bytes:
        return reply_or_nothing(self.stub("kiosk.Sell"), request)

    def stop(self) -> None:
        """Stop, even if the agent has not started yet."""
        self._late.cancel()
        super().stop()


class Clerk(Program):
    """Keeps at most ``LIMIT`` calls in flight: acquires a semaphore before each, and releases it in its done callback."""

    def __init__(self, name: str, port: int) -> None:
        """Calls spontaneously, so it is active."""
        agent = started_agent(name, reactive=False)
        self._limit = agent.Semaphore(LIMIT, name="in flight")
        self._baton = agent.Lock(name="baton")
        self._passed = threading.Semaphore(0)
        self._done = 0
        self._failed = 0
        super().__init__(name, agent=agent, port=port)

    def dial(self, addresses: dict[str, str]) -> None:
        """Connect, and begin to call."""
        super().dial(addresses)
        for work in (self._send_on, self._take_baton, self._pass_baton, self._print_stats):
            threading.Thread(target=work, daemon=True, name=work.__name__.strip("_")).start()

    def _send_on(self) -> None:
        while True:
            self._limit.acquire()
            self.stub("relay.Pass").future(b"0").add_done_callback(self._is_done)

    def _is_done(self, call: grpc.Future[bytes]) -> None:
        self._limit.release()
        self._count(call)
        if self._done % 4 == 0:
            self.stub("stall.Sell").future(b"0").add_done_callback(self._count)  # a callback that calls

    def _count(self, call: grpc.Future[bytes]) -> None:
        self._done += call.exception() is None
        self._failed += call.exception() is not None

    def _take_baton(self) -> None:
        while True:
            self._baton.acquire()
            reply_or_nothing(self.stub("kiosk.Sell"), b"0")
            self._passed.release()

    def _pass_baton(self) -> None:
        """Release a lock that another thread has acquired."""
        while True:
            self._passed.acquire()
            reply_or_nothing(self.stub("stall.Sell"), b"0")
            self._baton.release()

    def _print_stats(self) -> None:
        while True:
            time.sleep(STATS_SECONDS)
            stats = {"done": self._done, "failed": self._failed, "waiting": 0}
            print(json.dumps(stats), flush=True)  # noqa: T201 (the harness reads it)


class Desk:
    """On asyncio: holds its lock during a call that comes back for the same lock, until a watchdog task cancels the call."""

    def __init__(self, name: str, port: int) -> None:
        """Listens at once."""
        self._agent = started_agent(name)
        self._loop = asyncio.new_event_loop()
        self._channels: dict[str, grpc.aio.Channel] = {}
        threading.Thread(target=self._loop.run_forever, daemon=True, name="loop").start()
        self.port: int = self._do(self._listen(name, port))

    def _do(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    async def _listen(self, name: str, port: int) -> int:
        self._lock = self._agent.aio.Lock(name="till")
        self._server = grpc.aio.server(interceptors=[self._agent.aio_server_interceptor()])
        self._server.add_generic_rpc_handlers((handlers(name, {"Race": self._race, "Need": self._need}),))
        taken = self._server.add_insecure_port(f"{HOST}:{port}")
        await self._server.start()
        return taken

    def dial(self, addresses: dict[str, str]) -> None:
        """Connect to the other processes."""

        async def channels() -> dict[str, grpc.aio.Channel]:
            found = {name: grpc.aio.insecure_channel(target) for name, target in targets(addresses).items()}
            return {name: self._agent.channel(channel) for name, channel in found.items()}

        self._channels = self._do(channels())

    def obey(self, command: dict[str, Any]) -> None:
        """Accepts no commands."""

    def stop(self) -> None:
        """See :meth:`Program.stop`."""
        self._do(self._server.stop(1.0))
        self._agent.close()

    async def _need(self, request: bytes, _: Any) -> bytes:
        async with self._lock:
            return request

    async def _race(self, request: bytes, _: Any) -> bytes:
        async with self._lock:
            hold: Any = self._channels["relay"].unary_unary(path_of("relay.Hold")[1])
            call = hold(request)
            watchdog = asyncio.create_task(self._watch(call))
            await asyncio.wait({asyncio.ensure_future(outcome(call))})
            await watchdog
        return request

    @staticmethod
    async def _watch(call: Any) -> None:
        await asyncio.sleep(PATIENCE_SECONDS)
        call.cancel()


async def outcome(call: Any) -> None:
    """Wait for the end of a call, however it ends."""
    await call.code()


def targets(addresses: Mapping[str, str]) -> dict[str, str]:
    """The addresses of each service; calls to ``stall`` alternate between ``stall-1`` and ``stall-2``."""
    found: dict[str, list[str]] = {}
    for name, address in addresses.items():
        found.setdefault(name.partition("-")[0], []).append(address)
    return {service: f"ipv4:{','.join(replicas)}" for service, replicas in found.items()}


def reply_or_nothing(stub: Any, request: bytes, **rest: Any) -> bytes:
    """Call and return the reply; empty if the call fails, as happens when connections age and servers restart."""
    try:
        return bytes(stub(request, **rest))
    except grpc.RpcError:
        return b""


def started_agent(name: str, *, reactive: bool = True) -> Agent:
    """Create and start an agent."""
    agent = Agent(service=name, instance=name, reactive=reactive)
    agent.start()
    return agent
