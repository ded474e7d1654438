"""The coordinator's side of collectors: each agent behind a collector is served as if it were connected directly.

A collector multiplexes its agents over one stream. Each agent gets a :class:`RelayedContext`, which
:class:`~detector.service.grpc_api.agent_service.AgentServicer` uses like gRPC's own context, so the same code handles its
admission, leases, markers and looks. Of each report only the digest arrives here; the report itself goes to Kafka.
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
FLEET, TOPICS = "stilltrue-fleet-bin", "stilltrue-topics-bin"
"""Metadata in which a collector names its fleet and its topics; earlier ones send none."""

BEAT_SECONDS = 2.0
_EVENTS_AT_ONCE = 512
"""Maximum number of events per message: about 100 kB of markers."""
_UNREAD_MAX = 64
"""Unread messages of one agent; when it is full, its collector's stream is not read."""


class _AbortedError(Exception):
    """The handler ended a relayed stream with a status."""


class RelayedContext:
    """One agent's stream: the part of ``grpc.aio.ServicerContext`` that its handler uses."""

    def __init__(self, opened: pb.AgentOpened, send: Callable[[bytes], None], close: Callable[[int, str], None]) -> None:
        """``send``, ``close``: reach the agent through its collector."""
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
            raise asyncio.InvalidStateError("the stream has ended")
        self._send(message)

    async def abort(self, status: grpc.StatusCode, text: str) -> NoReturn:
        """End the stream with a status."""
        self._close(status.value[0], text)
        raise _AbortedError(text)

    def peer(self) -> str:
        """The agent's address."""
        return self._opened.peer

    def auth_context(self) -> Mapping[str, Sequence[bytes]]:
        """The names in the agent's certificate, which the collector has verified."""
        return {"peer_dns": [name.encode() for name in self._opened.names]} if self._opened.names else {}

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        """The agent's token."""
        return (("authorization", f"Bearer {self._opened.token}"),) if self._opened.token else ()

    # -- from the collector --------------------------------------------------------------------------------------------

    async def received(self, message: bytes) -> None:
        """Queue a message from the agent."""
        await self._unread.put(message)

    def ended(self) -> None:
        """Record the end of the agent's stream."""
        self._ended = True
        with contextlib.suppress(asyncio.QueueFull):
            self._unread.put_nowait(None)


class CollectorServicer:
    """``stilltrue.v1.CollectorService``."""

    def __init__(
        self, serve: Callable[[Any], Awaitable[None]], pending_snapshots_max: int, log: Log, *, fleet: str, topics: str
    ) -> None:
        """``serve`` handles an agent's stream, given its context."""
        self._serve = serve
        self._own = {FLEET: fleet.encode(), TOPICS: topics.encode()}
        self._pending_snapshots_max = pending_snapshots_max
        self._log = log

    def handler(self) -> grpc.GenericRpcHandler:
        """The service, for :meth:`grpc.aio.Server.add_generic_rpc_handlers`."""
        method = grpc.stream_stream_rpc_method_handler(
            self._relay, pb.RelayRequest.FromString, pb.RelayResponse.SerializeToString
        )
        return grpc.method_handlers_generic_handler(COLLECTOR_SERVICE, {"Relay": method})

    async def _relay(self, _: object, context: Any) -> None:
        """Serve one collector's stream, from its connection to its end."""
        sent = dict(context.invocation_metadata())
        for key, flag in ((FLEET, "--fleet"), (TOPICS, "--kafka-topics")):
            if key in sent and sent[key] != self._own[key]:
                theirs, own = (name.decode("utf-8", "replace") for name in (sent[key], self._own[key]))
                text = f"{flag}: the coordinator's is {own!r}, the collector's {theirs!r}: its reports would not be found"
                await context.abort(grpc.StatusCode.FAILED_PRECONDITION, text)
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
                    await agent.received(event.message)
            case "ended":
                if (agent := self._agents.pop(event.agent, None)) is not None:
                    agent.ended()
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
        context.ended()
        close(grpc.StatusCode.OK.value[0], "")

    async def write(self, context: Any) -> None:
        """Send queued events in batches, and an empty message as a heartbeat while there are none."""
        while True:
            events: list[pb.ToAgent] = []
            with contextlib.suppress(TimeoutError):
                events.append(await asyncio.wait_for(self._outgoing.get(), BEAT_SECONDS))
            while len(events) < _EVENTS_AT_ONCE and not self._outgoing.empty():
                events.append(self._outgoing.get_nowait())
            await context.write(pb.RelayResponse(events=events))

    def end(self) -> int:
        """End the streams of the collector's agents; returns how many there were."""
        agents, self._agents = self._agents, {}
        for agent in agents.values():
            agent.ended()
        return len(agents)
