"""The detector's side of the stream to one agent: writes markers and requests, and limits the rate of reading."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Sequence
from functools import lru_cache

import grpc
import grpc.aio

from stilltrue.model import CallNumber, SnapshotId
from stilltrue.protocol.requests.cure import CureRequest
from stilltrue.protocol.requests.look import LookRequest
from stilltrue.protocol.wire.cure import cure_to_wire
from stilltrue.protocol.wire.look import request_to_wire
from stilltrue.v1 import agent_pb2 as pb

_WRITE_SECONDS_MAX = 1.0
MESSAGES_PER_SECOND = 200.0
"""Rate limit for reading one agent, after a burst; excess messages wait in its connection. Agents send a few per second."""
MESSAGE_BYTES = 256 * 1024
"""A message of this size counts as two, and so on, so that the rate is limited in bytes, too."""
MESSAGES_BURST = 1000
_REQUESTS_MAX = 64
"""Requests queued for a slow agent; beyond this the oldest are dropped. A dropped look leaves its parties in doubt."""
NEWS_PER_TURN = 8
"""Maximum number of new reports decoded per turn of the loop: milliseconds, where a whole fleet would take seconds.

gRPC accepts less than one new stream per turn, and questions, health checks and leases wait for its end.
"""
MARKERS_PER_TURN = 32
"""Maximum number of agents written to per turn of the loop; as many reports arrive a few turns later."""
CROWDED_SECONDS = 0.5
"""How long the loop counts as crowded after the last task that had to wait."""
Context = grpc.aio.ServicerContext[bytes, bytes]


class ReplacedError(Exception):
    """Another stream has replaced this one."""


@lru_cache(maxsize=8)
def _marker(snapshot: SnapshotId) -> bytes:
    """The marker for agents without settled doubts, that is, for most."""
    return _marker_with_settled(snapshot, ())


def _marker_with_settled(snapshot: SnapshotId, settled: Sequence[CallNumber]) -> bytes:
    return pb.ConnectResponse(mark=pb.Mark(snapshot=snapshot, settled=settled)).SerializeToString()


class Pace:
    """Rate limit for reading one stream, so that no agent starves the others."""

    def __init__(self, now: float) -> None:
        """``now``: monotonic time."""
        self._next = now - MESSAGES_BURST / MESSAGES_PER_SECOND

    def pause(self, now: float, size: int = 0) -> float:
        """Record a message of ``size`` bytes; return how many seconds to wait before reading the next."""
        cost = (1 + size / MESSAGE_BYTES) / MESSAGES_PER_SECOND
        self._next = max(self._next, now - MESSAGES_BURST / MESSAGES_PER_SECOND) + cost
        return max(0.0, self._next - now)


class LoopThrottle:
    """Limits the expensive work per turn of the event loop; the rest waits for later turns, in order of arrival."""

    def __init__(self, most: int) -> None:
        """``most``: how many tasks may go on per turn."""
        self._most = self._left = most
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._armed = False
        self._crowded_at = -math.inf

    def crowded(self) -> bool:
        """Whether a task waits for a turn, or did a moment ago: replies to what it wrote may still be on their way."""
        return bool(self._waiting) or asyncio.get_running_loop().time() < self._crowded_at + CROWDED_SECONDS

    async def turn(self) -> None:
        """Wait for a turn."""
        if self._left and not self._waiting:
            self._left -= 1
            self._arm()
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        self._arm()
        await future

    def _arm(self) -> None:
        if not self._armed:
            self._armed = True
            asyncio.get_running_loop().call_soon(self._next)

    def _next(self) -> None:
        self._armed, self._left = False, self._most
        while self._left and self._waiting:
            future = self._waiting.popleft()
            if not future.done():
                future.set_result(None)
                self._left -= 1
        if self._waiting:
            self._crowded_at = asyncio.get_running_loop().time()
            self._arm()


class AgentStream:
    """The stream to one agent. Only the newest marker is queued, since it covers earlier ones; none precedes the welcome."""

    def __init__(self, context: Context, throttle: LoopThrottle) -> None:
        """``context``: of the call whose handler creates this stream; ``throttle``: limits writes."""
        self._context = context
        self._throttle = throttle
        self._handler = asyncio.current_task()
        self._marker: SnapshotId | None = None
        self._settled: Sequence[CallNumber] = ()
        self._requests: deque[pb.ConnectResponse] = deque(maxlen=_REQUESTS_MAX)
        self._writer: asyncio.Task[None] | None = None
        self._open = False
        self._reading = False
        self.ended: str | None = None

    async def read(self) -> object:
        """The next message: bytes, or gRPC's end-of-stream object. Raises :class:`ReplacedError`."""
        if self.ended is not None:
            raise ReplacedError(self.ended)
        self._reading = True
        try:
            return await self._context.read()
        except asyncio.CancelledError:
            if self.ended is None:
                raise
            raise ReplacedError(self.ended) from None
        finally:
            self._reading = False

    async def open(self, welcome: pb.ConnectResponse) -> None:
        """Welcome the agent; markers may follow."""
        await self._context.write(welcome.SerializeToString())
        self._open = True
        if self._marker is not None:
            self.send_marker(self._marker)

    def send_marker(self, snapshot: SnapshotId, settled: Sequence[CallNumber] = ()) -> None:
        """Request a cut; ``settled``: calls of this agent that are no longer in doubt."""
        self._marker = snapshot
        self._settled = settled or self._settled
        self._send()

    def send_look(self, request: LookRequest) -> None:
        """Request a second look."""
        self._send_request(pb.ConnectResponse(look=request_to_wire(request)))

    def send_cure(self, request: CureRequest) -> None:
        """Request that victims be aborted."""
        self._send_request(pb.ConnectResponse(cure=cure_to_wire(request)))

    def send_stacks_request(self, number: int) -> None:
        """Request the stacks of parties that have not moved for a while."""
        self._send_request(pb.ConnectResponse(stacks=pb.StacksRequest(number=number)))

    def _send_request(self, request: pb.ConnectResponse) -> None:
        self._requests.append(request)
        self._send()

    def _send(self) -> None:
        if self._open and (self._writer is None or self._writer.done()):
            self._writer = asyncio.get_running_loop().create_task(self._write())

    async def _write(self) -> None:
        await self._throttle.turn()
        while (message := self._next()) is not None:
            try:
                await self._context.write(message)
            except (grpc.aio.UsageError, grpc.aio.InternalError, grpc.RpcError, asyncio.InvalidStateError):
                return  # the stream has ended: its reader notices and reports it

    def _next(self) -> bytes | None:
        """The next queued message, the marker first."""
        if self._marker is not None:
            snapshot, self._marker = self._marker, None
            settled, self._settled = self._settled, ()
            return _marker_with_settled(snapshot, settled) if settled else _marker(snapshot)
        return self._requests.popleft().SerializeToString() if self._requests else None

    def replaced(self, text: str) -> None:
        """End the stream because another replaces it. Only a read is interrupted: gRPC cannot end a stream during a write."""
        if self.ended is None and self._reading and self._handler is not None:
            self._handler.cancel()
        self.ended = self.ended or text

    async def end(self, status: grpc.StatusCode, text: str) -> None:
        """End the stream with a status after the current write."""
        self._open = False
        if self._writer is not None:
            await asyncio.wait([self._writer], timeout=_WRITE_SECONDS_MAX)
        await self._context.abort(status, text)

    def close(self) -> None:
        """Stop writing."""
        if self._writer is not None:
            self._writer.cancel()
