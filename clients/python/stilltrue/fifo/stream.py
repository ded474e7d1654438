"""One end of a stream to another process: incoming frames, and the queue and writer of outgoing ones."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable

from stilltrue.fifo.wire import Frame, Payload, decode
from stilltrue.v1 import channels_pb2 as pb


async def frames_of(messages: AsyncIterable[pb.AttachRequest] | AsyncIterable[pb.AttachResponse]) -> AsyncIterator[Frame]:
    """The frames of a stream. Raises FrameError at the first that breaks the contract."""
    async for message in messages:
        yield decode(message.frame)


class Stream:
    """The outgoing queue, in order. Only messages count towards its bound, so markers never wait for room."""

    def __init__(self, messages_max: int) -> None:
        self.up = asyncio.Event()
        self.messages = 0
        self._messages_max = messages_max
        self._queue: deque[Frame] = deque()
        self._has_frame = asyncio.Event()
        self._written = asyncio.Event()
        self._writing = False
        self._closed = False

    @property
    def full(self) -> bool:
        """Whether another message must wait."""
        return self.messages >= self._messages_max

    @property
    def closed(self) -> bool:
        """Whether the stream has ended."""
        return self._closed

    def put(self, frame: Frame) -> None:
        """Queue ``frame``; does nothing once the stream has ended."""
        if self._closed:
            return
        self._queue.append(frame)
        self.messages += isinstance(frame, Payload)
        self._has_frame.set()

    async def room(self) -> None:
        """Wait until a message can be put (or the stream has ended)."""
        while self.full and not self._closed:
            self._written.clear()
            await self._written.wait()

    async def flushed(self) -> None:
        """Wait until the queue is empty and written (or the stream has ended)."""
        while (self._queue or self._writing) and not self._closed:
            self._written.clear()
            await self._written.wait()

    async def write_all(self, write: Callable[[Frame], Awaitable[None]]) -> None:
        """Write queued frames until cancelled or the stream breaks; the reader handles a broken stream."""
        while True:
            while not self._queue:
                self._has_frame.clear()
                await self._has_frame.wait()
            frame = self._queue.popleft()
            self._writing = True
            try:
                await write(frame)
            except BaseException:
                self.close()
                raise
            self._writing = False
            self.messages -= isinstance(frame, Payload)
            self._written.set()

    def close(self) -> None:
        """Drop the queued frames and wake all waiters, as the stream has ended."""
        self._closed = True
        self.up.set()
        self._queue.clear()
        self.messages = 0
        self._written.set()
