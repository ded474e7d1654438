"""The coordinator's side of the collectors: each agent behind a collector is served as if it had connected here.

A collector's one stream carries those of all its agents. Each of them gets a :class:`RelayedContext`, which is to
:class:`~detector.service.grpc_api.agent_service.AgentServicer` what gRPC's own context is; so whatever is said of an agent's
stream (admission, leases, markers, looks) is said once. Of a report only its digest comes: the report is in Kafka.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NoReturn

import grpc
import grpc.aio

from detector.ops.logs import Log
from stilltrue.v1 import collector_pb2 as pb

COLLECTOR_SERVICE = "stilltrue.v1.CollectorService"
BEAT_SECONDS = 2.0
_EVENTS_AT_ONCE = 512
"""How many events one message of the stream carries: about 100 kB of markers."""
_UNREAD_MAX = 64
"""Messages of one agent that wait here to be read; its collector's stream is read no faster than they are."""


class _AbortedError(Exception):
    """The handler of a relayed stream has ended it with a status."""


class RelayedContext:
    """One agent's stream, as much of ``grpc.aio.ServicerContext`` as its handler uses."""

    def __init__(self, opened: pb.AgentOpened, send: Callable[[bytes], None], close: Callable[[int, str], None]) -> None:
        """``send`` and ``close``: to the agent, by way of its collector."""
        self._opened = opened
        self._send = send
        self._close = close
        self._unread: asyncio.Queue[bytes | None] = asyncio.Queue(_UNREAD_MAX)
        self._ended = False

    async def read(self) -> Any:
        """The next message, or gRPC's end-of-stream object."""
        if self._ended and self._unread.empty():
            return grpc.aio.EOF
        message = await self._unread.get()
        return grpc.aio.EOF if message is None else message

    async def write(self, message: bytes) -> None:
        """Send to the agent."""
        if self._ended:
            raise asyncio.InvalidStateError("the stream is over")
        self._send(message)

    async def abort(self, status: grpc.StatusCode, text: str) -> NoReturn:
        """End the stream with a status."""
        self._close(status.value[0], text)
        raise _AbortedError(text)

    def peer(self) -> str:
        """The agent's address."""
        return self._opened.peer

    def auth_context(self) -> Mapping[str, Sequence[bytes]]:
        """The names in the agent's certificate, which its collector has checked."""
        return {"peer_dns": [name.encode() for name in self._opened.names]} if self._opened.names else {}

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        """The agent's token."""
        return (("authorization", f"Bearer {self._opened.token}"),) if self._opened.token else ()

    # -- from the collector --------------------------------------------------------------------------------------------

    async def came(self, message: bytes) -> None:
        """The agent has sent this."""
        await self._unread.put(message)

    def over(self) -> None:
        """The agent's stream has ended."""
        self._ended = True
        with contextlib.suppress(asyncio.QueueFull):
            self._unread.put_nowait(None)


class CollectorServicer:
    """``stilltrue.v1.CollectorService``."""

    def __init__(self, serve: Callable[[Any], Awaitable[None]], pending_snapshots_max: int, log: Log) -> None:
        """``serve`` handles an agent's stream, given its context."""
        self._serve = serve
        self._pending_snapshots_max = pending_snapshots_max
        self._log = log

    def handler(self) -> grpc.GenericRpcHandler:
        """The service, for :meth:`grpc.aio.Server.add_generic_rpc_handlers`."""
        method = grpc.stream_stream_rpc_method_handler(
            self._relay, pb.RelayRequest.FromString, pb.RelayResponse.SerializeToString
        )
        return grpc.method_handlers_generic_handler(COLLECTOR_SERVICE, {"Relay": method})

    async def _relay(self, _: object, context: Any) -> None:
        """One collector, from its connection to its end."""
        await context.write(pb.RelayResponse(pending_snapshots_max=self._pending_snapshots_max))
        self._log.info("collector connected", peer=context.peer())
        collector = _Collector(self._serve)
        writer = asyncio.create_task(collector.write(context))
        try:
            while isinstance(request := await context.read(), pb.RelayRequest):
                for event in request.events:
                    await collector.take(event)
        finally:
            writer.cancel()
            agents = collector.end()
            self._log.info("collector gone", peer=context.peer(), agents=agents)


class _Collector:
    """One collector's agents."""

    def __init__(self, serve: Callable[[Any], Awaitable[None]]) -> None:
        self._serve = serve
        self._agents: dict[int, RelayedContext] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._outgoing: asyncio.Queue[pb.ToAgent] = asyncio.Queue()

    async def take(self, event: pb.FromAgent) -> None:
        match event.WhichOneof("event"):
            case "opened":
                self._open(event.agent, event.opened)
            case "message":
                if (agent := self._agents.get(event.agent)) is not None:
                    await agent.came(event.message)
            case "ended":
                if (agent := self._agents.pop(event.agent, None)) is not None:
                    agent.over()
            case _:
                return  # an event of a later version

    def _open(self, number: int, opened: pb.AgentOpened) -> None:
        def send(message: bytes) -> None:
            self._outgoing.put_nowait(pb.ToAgent(agent=number, message=message))

        def close(status: int, text: str) -> None:
            if self._agents.pop(number, None) is not None:
                self._outgoing.put_nowait(pb.ToAgent(agent=number, close=pb.CloseAgent(status=status, text=text)))

        context = self._agents[number] = RelayedContext(opened, send, close)
        task = asyncio.create_task(self._serve_one(context, close))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve_one(self, context: RelayedContext, close: Callable[[int, str], None]) -> None:
        with contextlib.suppress(_AbortedError):
            await self._serve(context)
        context.over()
        close(grpc.StatusCode.OK.value[0], "")

    async def write(self, context: Any) -> None:
        """Send what waits, many events at once; while there is nothing, a sign of life, whatever comes from the collector."""
        while True:
            events: list[pb.ToAgent] = []
            with contextlib.suppress(TimeoutError):
                events.append(await asyncio.wait_for(self._outgoing.get(), BEAT_SECONDS))
            while len(events) < _EVENTS_AT_ONCE and not self._outgoing.empty():
                events.append(self._outgoing.get_nowait())
            await context.write(pb.RelayResponse(events=events))

    def end(self) -> int:
        """The collector is gone, and with it its agents' streams; how many there were."""
        agents, self._agents = self._agents, {}
        for agent in agents.values():
            agent.over()
        return len(agents)
