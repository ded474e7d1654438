"""The collector's side of an agent's stream: reports go to Kafka, digests to the coordinator, its messages to the agent."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from time import monotonic

import grpc
import grpc.aio

from detector.assembly.cluster import RecordsUnavailableError
from detector.collector.intake import Intake
from detector.collector.metrics import Counts
from detector.collector.relay import Relay
from detector.ops.logs import Log
from detector.service.grpc_api.agent_stream import Context, Pace
from detector.service.grpc_api.report_checks import RefusedError
from detector.service.grpc_api.security import bearer_token, certificate_names
from stilltrue.protocol.wire.values import MalformedError
from stilltrue.v1 import collector_pb2 as pb

_UNWRITTEN_MAX = 256
"""Most messages queued for an agent that does not read; beyond it the oldest is dropped, as in a detector."""

Keep = Callable[[int, bytes], Awaitable[None]]
"""Writes an agent's report for a snapshot. Raises :class:`RecordsUnavailableError`."""


class _ClosedError(Exception):
    """The coordinator has ended the stream."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = next(code for code in grpc.StatusCode if code.value[0] == status)
        self.text = text


class CollectedStream:
    """One agent, from its connection to its end."""

    def __init__(self, context: Context, *, relay: Relay, intake: Intake, keep: Keep, counts: Counts, log: Log) -> None:
        """``keep`` writes the agent's reports."""
        self._context = context
        self._relay = relay
        self._intake = intake
        self._keep = keep
        self._counts = counts
        self._log = log
        self._handler = asyncio.current_task()
        self._unwritten: deque[bytes] = deque(maxlen=_UNWRITTEN_MAX)
        self._wake = asyncio.Event()
        self._closed: _ClosedError | None = None
        self._reading = False

    # -- from the coordinator ------------------------------------------------------------------------------------------

    def deliver(self, message: bytes) -> None:
        """See :class:`~detector.collector.relay.Agent`."""
        self._intake.admitted = True  # the first message is the welcome
        self._unwritten.append(message)
        self._wake.set()

    def close(self, status: int, text: str) -> None:
        """See :class:`~detector.collector.relay.Agent`."""
        if self._closed is None:
            self._closed = _ClosedError(status, text)
            self._wake.set()
            if self._reading and self._handler is not None:
                self._handler.cancel()

    # -- from the agent ------------------------------------------------------------------------------------------------

    async def serve(self) -> None:
        """Serve the agent until one side ends the stream."""
        opened = pb.AgentOpened(
            peer=self._context.peer(), names=sorted(certificate_names(self._context)), token=bearer_token(self._context)
        )
        number = self._relay.opened(self, opened)
        if number is None:
            await self._context.abort(grpc.StatusCode.UNAVAILABLE, "the collector has no coordinator yet")
            return
        writer = asyncio.create_task(self._write())
        try:
            await self._listen(number)
        except RefusedError as refused:
            self._counts.refused += 1
            await self._end(writer, refused.status, refused.text)
        except MalformedError as error:
            self._counts.refused += 1
            await self._end(writer, grpc.StatusCode.INVALID_ARGUMENT, f"report.{error}")
        except _ClosedError as closed:
            await self._end(writer, closed.status, closed.text)
        finally:
            writer.cancel()
            self._relay.ended(number)

    async def _end(self, writer: asyncio.Task[None], status: grpc.StatusCode, text: str) -> None:
        """End the stream with a status, after writing the queued messages."""
        self._closed = self._closed or _ClosedError(status.value[0], text)
        self._wake.set()
        await asyncio.wait([writer], timeout=1.0)
        if status is not grpc.StatusCode.OK:
            self._log.warning("agent's stream ended", peer=self._context.peer(), status=status.name, reason=text)
            await self._context.abort(status, text)

    async def _listen(self, number: int) -> None:
        pace = Pace(monotonic())
        while isinstance(data := await self._read(), bytes):
            pause = pace.pause(monotonic(), len(data))
            if pause:
                await asyncio.sleep(pause)
            taken = self._intake.report(data)
            if taken is None:
                self._relay.received(number, data)
            elif self._intake.admitted and await self._store(taken.snapshots, data):
                self._relay.received(number, taken.digest)

    async def _read(self) -> object:
        """Read the next message; raise :class:`_ClosedError` if the coordinator ends the stream."""
        if self._closed is not None:
            raise self._closed
        self._reading = True
        try:
            return await self._context.read()
        except asyncio.CancelledError:
            if self._closed is None:
                raise
            raise self._closed from None
        finally:
            self._reading = False

    async def _store(self, snapshots: tuple[int, ...], data: bytes) -> bool:
        """Write the report to Kafka; return whether that succeeded. Without it the member is missing from the snapshots."""
        try:
            await asyncio.gather(*(self._keep(snapshot, data) for snapshot in snapshots))
        except RecordsUnavailableError as error:
            self._log.warning("report not kept", peer=self._context.peer(), reason=str(error))
            self._counts.unkept += 1
            return False
        self._counts.reports += 1
        self._counts.report_bytes += len(data)
        return True

    async def _write(self) -> None:
        while True:
            while self._unwritten:
                try:
                    await self._context.write(self._unwritten.popleft())
                except (grpc.aio.UsageError, grpc.aio.InternalError, grpc.RpcError, asyncio.InvalidStateError):
                    return  # the stream has ended; the reader notices
            if self._closed is not None:
                return
            self._wake.clear()
            await self._wake.wait()
