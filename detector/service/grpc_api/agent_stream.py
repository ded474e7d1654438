"""The detector's side of the stream to one agent: what is written to it, and how fast it is read."""

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
"""As fast as one agent is read, after a burst; what is beyond waits in its connection. An agent sends a few each second."""
MESSAGE_BYTES = 256 * 1024
"""A message of this size counts as two, and so on: what is read of one agent is bounded in bytes as well."""
MESSAGES_BURST = 1000
_REQUESTS_MAX = 64
"""What waits for a slow reader; beyond it the oldest is dropped. A look that does not come leaves its parties in doubt."""
NEWS_PER_TURN = 8
"""How many reports that say something new are decoded in one turn of the loop: milliseconds, not the seconds of a whole fleet.

gRPC takes less than one new stream in each turn, and questions, health and leases wait for its end.
"""
MARKERS_PER_TURN = 32
"""To how many agents one turn of the loop writes; so many reports come back, a few turns later."""
CROWDED_SECONDS = 0.5
"""For how long after the last one had to wait the turns count as crowded."""
Context = grpc.aio.ServicerContext[bytes, bytes]


class ReplacedError(Exception):
    """Another stream has taken this one's place."""


@lru_cache(maxsize=8)
def _marker(snapshot: SnapshotId) -> bytes:
    """The marker for agents without settled doubts, which are most."""
    return _marker_that_settles(snapshot, ())


def _marker_that_settles(snapshot: SnapshotId, settled: Sequence[CallNumber]) -> bytes:
    return pb.ConnectResponse(mark=pb.Mark(snapshot=snapshot, settled=settled)).SerializeToString()


class Pace:
    """How fast one stream is read, so that none of them takes the loop from the others."""

    def __init__(self, now: float) -> None:
        """``now``: by the monotonic clock."""
        self._next = now - MESSAGES_BURST / MESSAGES_PER_SECOND

    def pause(self, now: float, size: int = 0) -> float:
        """A message of ``size`` bytes has come: for how long the next one is not read."""
        cost = (1 + size / MESSAGE_BYTES) / MESSAGES_PER_SECOND
        self._next = max(self._next, now - MESSAGES_BURST / MESSAGES_PER_SECOND) + cost
        return max(0.0, self._next - now)


class LoopThrottle:
    """Limits the expensive work in one turn of the event loop; the rest waits for the next turns, in the order of arrival."""

    def __init__(self, most: int) -> None:
        """``most``: how many may go on in one turn."""
        self._most = self._left = most
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._armed = False
        self._crowded_at = -math.inf

    def crowded(self) -> bool:
        """Whether somebody waits for a turn, or did a moment ago: an answer to what was written then is on its way."""
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
    """The stream to one agent. At most one marker waits, the newest, which serves all before it; none precedes the welcome."""

    def __init__(self, context: Context, throttle: LoopThrottle) -> None:
        """``context`` of the call whose handler makes this; ``throttle``: when it may write."""
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
        """Ask for a cut; ``settled``: the doubts of this agent's that are over."""
        self._marker = snapshot
        self._settled = settled or self._settled
        self._send()

    def send_look(self, request: LookRequest) -> None:
        """Ask for a second look."""
        self._send_request(pb.ConnectResponse(look=request_to_wire(request)))

    def send_cure(self, request: CureRequest) -> None:
        """Ask for victims to be aborted."""
        self._send_request(pb.ConnectResponse(cure=cure_to_wire(request)))

    def send_stacks_request(self, number: int) -> None:
        """Ask what long-active parties are blocked in."""
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
                return  # the stream is over: its reader finds out and says so

    def _next(self) -> bytes | None:
        """The next message that waits: the marker first."""
        if self._marker is not None:
            snapshot, self._marker = self._marker, None
            settled, self._settled = self._settled, ()
            return _marker_that_settles(snapshot, settled) if settled else _marker(snapshot)
        return self._requests.popleft().SerializeToString() if self._requests else None

    def replaced(self, text: str) -> None:
        """Only a read is broken off: gRPC cannot end a stream in the middle of a write."""
        if self.ended is None and self._reading and self._handler is not None:
            self._handler.cancel()
        self.ended = self.ended or text

    async def end(self, status: grpc.StatusCode, text: str) -> None:
        """End the stream with a status, once the current write is done."""
        self._open = False
        if self._writer is not None:
            await asyncio.wait([self._writer], timeout=_WRITE_SECONDS_MAX)
        await self._context.abort(status, text)

    def close(self) -> None:
        """Write nothing more."""
        if self._writer is not None:
            self._writer.cancel()
