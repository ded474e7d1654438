"""A process whose handler runs a test's body, one behind it whose calls are stuck, and what its report says of them."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import grpc.aio

from stilltrue import Agent
from stilltrue.model import SnapshotId
from stilltrue.protocol.report import CallTarget, LocalWait, Report

Call = Callable[..., Any]


Body = Callable[["World"], Awaitable[Any]]


class World:
    """A process whose handler runs a body of the test, and one behind it whose calls are stuck until ``go``, or quick."""

    def __init__(self, front: Agent, back: Agent) -> None:
        self.front, self.back = front, back
        self.go = asyncio.Event()
        self.body: Body
        self.snapshots = itertools.count(1)

    async def start(self) -> None:
        def handlers(**behaviours: Any) -> list[grpc.GenericRpcHandler]:
            methods: dict[str, Any] = {
                name: grpc.unary_unary_rpc_method_handler(behaviour) for name, behaviour in behaviours.items()
            }
            return [grpc.method_handlers_generic_handler("t.T", methods)]

        async def do(request: bytes, context: Any) -> bytes:
            await self.body(self)
            return b"done"

        async def stuck(request: bytes, context: Any) -> bytes:
            await self.go.wait()
            return request

        async def quick(request: bytes, context: Any) -> bytes:
            return request

        async def failing(request: bytes, context: Any) -> bytes:
            await context.abort(grpc.StatusCode.NOT_FOUND, "nothing here")
            return b""

        self.servers = []
        ports = []
        for agent, found in ((self.front, handlers(Do=do)), (self.back, handlers(Stuck=stuck, Quick=quick, Fail=failing))):
            server = grpc.aio.server(handlers=found, interceptors=[agent.aio_server_interceptor()])
            ports.append(server.add_insecure_port("127.0.0.1:0"))
            await server.start()
            self.servers.append(server)
        self.outside: Any = grpc.aio.insecure_channel(f"127.0.0.1:{ports[0]}")
        self.channel = self.front.channel(grpc.aio.insecure_channel(f"127.0.0.1:{ports[1]}"))
        self.stuck: Call = self.channel.unary_unary("/t.T/Stuck")
        self.quick: Call = self.channel.unary_unary("/t.T/Quick")
        self.fail: Call = self.channel.unary_unary("/t.T/Fail")

    async def stop(self) -> None:
        self.go.set()
        for server in self.servers:
            await server.stop(0)
        await self.channel.close()
        await self.outside.close()

    async def report(
        self, body: Body, *, stuck: int, timeout: float | None = None, at_the_cut: Callable[[], object] = lambda: None
    ) -> Report:
        """The front's report while ``body`` runs in its handler and ``stuck`` calls of it are stuck; then all are let go.

        ``at_the_cut`` runs right before it, while the loop does nothing else.
        """
        self.body = body
        call: Any = self.outside.unary_unary("/t.T/Do")(b"", timeout=timeout)
        while sum(served.serving for served in self.back.live.recorder._served.values()) < stuck or self.busy() > stuck:
            await asyncio.sleep(0.002)
        await asyncio.sleep(0.01)
        at_the_cut()
        report = self.front.live.marked(SnapshotId(next(self.snapshots)))
        self.go.set()
        assert await call == b"done"
        assert self.front.live.faults == self.back.live.faults == 0
        after = self.front.live.marked(SnapshotId(next(self.snapshots)))
        assert report is not None
        assert after is not None
        assert (after.served, after.waits) == ((), ())
        assert all(made.doubtful for made in after.made)
        return report

    def busy(self) -> int:
        return len(self.front.live.recorder._made)


def of(report: Report, waiter: str) -> list[LocalWait]:
    return [wait for wait in report.waits if wait.waiter == waiter]


def handler(report: Report) -> str:
    (served,) = report.served
    assert served.party.startswith("front/Do#")
    assert served.serving
    return served.party


def subtasks(report: Report) -> dict[Any, LocalWait]:
    """The waits for calls, by their parties, the handler's own left out."""
    return {
        wait.waiter: wait for wait in report.waits if isinstance(wait.among[0], CallTarget) and wait.waiter != handler(report)
    }
