"""The collector's stream to the coordinator, which carries the streams of all its agents and is redialled when it breaks.

Without it no agent is served. When it breaks, the agents' streams end; agents then reconnect, as they do to a detector.
"""

from __future__ import annotations

import asyncio
import itertools
import re
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

import grpc
import grpc.aio

from detector.ops.logs import Log
from detector.service.grpc_api.relay import FLEET, TOPICS
from stilltrue.runtime.membership.credentials import Security, SecurityRefusedError
from stilltrue.v1 import collector_pb2 as pb

_METHOD = "/stilltrue.v1.CollectorService/Relay"
_EVENTS_AT_ONCE = 512
_BYTES_AT_ONCE = 2**20
"""Size at which a message of the stream is sent; one agent's message more still fits a detector's limit of four reports."""
_UNSENT_MAX = 65_536
"""Most queued events; a coordinator that lets so many accumulate counts as lost."""
_RETRY_SECONDS = 1.0
_LOG_AGAIN_SECONDS = 60.0
"""While there is no coordinator, the same status is logged this often."""
SILENT_SECONDS_MAX = 10.0
"""After this long without any message, the coordinator counts as lost."""
_CLOSED = "if it uses TLS: --tls-ca-file; if it requires a client certificate: --tls-cert-file, --tls-key-file"
_OPTIONS = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.enable_http_proxy", 0),
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 2_000),
)


class Agent(Protocol):
    """An agent's stream, which receives the coordinator's messages. All calls are on the event loop."""

    def deliver(self, message: bytes) -> None:
        """Send a message to the agent."""

    def close(self, status: int, text: str) -> None:
        """End the agent's stream."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Coordinator:
    """The coordinator's addresses (``HOST:PORT[,...]``; the first that answers is used), and our credentials for it."""

    address: str
    security: Security


class Relay:
    """The stream to the coordinator. All methods are called on the event loop."""

    def __init__(self, coordinator: Coordinator, log: Log, *, fleet: str, topics: str) -> None:
        """``fleet`` and ``topics`` must be the coordinator's: reports elsewhere would not be found."""
        self._coordinator = coordinator
        self._log = log
        self._names = ((FLEET, fleet.encode()), (TOPICS, topics.encode()))
        self._numbers = itertools.count(1)
        self._agents: dict[int, Agent] = {}
        self._unsent: asyncio.Queue[pb.FromAgent] | None = None
        self._logged: dict[tuple[str, str], float] = {}
        """When the status of an address was last logged, by the event loop's clock."""
        self.pending_snapshots_max = 1
        self.connected = asyncio.Event()

    def streams(self) -> int:
        """Return the number of connected agents."""
        return len(self._agents)

    def opened(self, agent: Agent, opened: pb.AgentOpened) -> int | None:
        """An agent has connected; return its number, or None while there is no coordinator."""
        if self._unsent is None:
            return None
        number = next(self._numbers)
        self._agents[number] = agent
        self._send(pb.FromAgent(agent=number, opened=opened))
        return number

    def received(self, number: int, message: bytes) -> None:
        """An agent has sent a message."""
        if number in self._agents:
            self._send(pb.FromAgent(agent=number, message=message))

    def ended(self, number: int) -> None:
        """An agent's stream has ended."""
        if self._agents.pop(number, None) is not None:
            self._send(pb.FromAgent(agent=number, ended=pb.AgentEnded()))

    def _send(self, event: pb.FromAgent) -> None:
        if self._unsent is not None:
            try:
                self._unsent.put_nowait(event)
            except asyncio.QueueFull:
                self._log.warning("coordinator does not read", unsent=_UNSENT_MAX)
                self._lose()

    def _lose(self) -> None:
        """The coordinator is lost: end all agents' streams."""
        self._unsent = None
        self.connected.clear()
        agents, self._agents = self._agents, {}
        for agent in agents.values():
            agent.close(grpc.StatusCode.UNAVAILABLE.value[0], "the coordinator cannot be reached")

    async def run(self) -> None:
        """Keep a stream to the coordinator until cancelled."""
        while True:
            for address in self._coordinator.address.split(","):
                try:
                    await self._connect(address)
                except grpc.aio.AioRpcError as error:
                    self._log_failure(address, error.code().name, error.details())
                except SecurityRefusedError as error:
                    self._log_failure(address, "refused", str(error))
                finally:
                    self._lose()
            await asyncio.sleep(_RETRY_SECONDS)

    def _log_failure(self, address: str, status: str, reason: str | None) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._logged.get((address, status), -_LOG_AGAIN_SECONDS) >= _LOG_AGAIN_SECONDS:
            self._logged[address, status] = now
            closed = re.search("socket closed", reason or "", re.IGNORECASE)
            fix = _CLOSED if closed and status == grpc.StatusCode.UNAVAILABLE.name else None
            self._log.warning("no coordinator", address=address, status=status, reason=reason, fix=fix)

    async def _connect(self, address: str) -> None:
        credentials, token = self._coordinator.security.loaded(address)
        async with _channel(address, credentials) as channel:
            method = channel.stream_stream(
                _METHOD, request_serializer=pb.RelayRequest.SerializeToString, response_deserializer=pb.RelayResponse.FromString
            )
            call: Any = method(metadata=(*self._names, *((("authorization", f"Bearer {token}"),) if token else ())))
            unsent: asyncio.Queue[pb.FromAgent] = asyncio.Queue(_UNSENT_MAX)
            writer = asyncio.create_task(_write(call, unsent))
            try:
                async with asyncio.timeout(SILENT_SECONDS_MAX) as silence:
                    while isinstance(response := await call.read(), pb.RelayResponse):
                        silence.reschedule(asyncio.get_running_loop().time() + SILENT_SECONDS_MAX)
                        self._handle(response, unsent, address)
            except TimeoutError:
                self._log_failure(address, "SILENT", f"for {SILENT_SECONDS_MAX:g} s")
            finally:
                writer.cancel()
                call.cancel()

    def _handle(self, response: pb.RelayResponse, unsent: asyncio.Queue[pb.FromAgent], address: str) -> None:
        if response.pending_snapshots_max:
            self.pending_snapshots_max, self._unsent = response.pending_snapshots_max, unsent
            self.connected.set()
            self._logged.clear()
            self._log.info("coordinator found", address=address)
        for event in response.events:
            self._take(event)

    def _take(self, event: pb.ToAgent) -> None:
        agent = self._agents.get(event.agent)
        if agent is None:
            return
        if event.WhichOneof("event") == "message":
            agent.deliver(event.message)
        elif event.WhichOneof("event") == "close":
            del self._agents[event.agent]
            agent.close(event.close.status, event.close.text)


def _channel(address: str, credentials: grpc.ChannelCredentials | None) -> grpc.aio.Channel:
    if credentials is None:
        return grpc.aio.insecure_channel(address, options=_OPTIONS)
    return grpc.aio.secure_channel(address, credentials, options=_OPTIONS)


async def _write(call: Any, unsent: asyncio.Queue[pb.FromAgent]) -> None:
    """Send queued events in batches."""
    while True:
        events = [await unsent.get()]
        size = len(events[0].message)
        while size < _BYTES_AT_ONCE and len(events) < _EVENTS_AT_ONCE and not unsent.empty():
            events.append(unsent.get_nowait())
            size += len(events[-1].message)
        with suppress(asyncio.InvalidStateError, grpc.RpcError):  # the stream has ended; the reader notices
            await call.write(pb.RelayRequest(events=events))
