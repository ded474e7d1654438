"""One stream to another process, seen from here: the frames that come, the queue of those that wait, their one writer."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable

from stilltrue.fifo.wire import Frame, Payload, decode
from stilltrue.v1 import channels_pb2 as pb


async def frames_of(messages: AsyncIterable[pb.AttachRequest] | AsyncIterable[pb.AttachResponse]) -> AsyncIterator[Frame]:
    """The frames of a stream; FrameError at the first that breaks the contract."""
    async for message in messages:
        yield decode(message.frame)


class Link:
    """Frames go out in the order of :meth:`put`; only messages count towards the bound, so markers never wait for room."""

    def __init__(self, messages_max: int) -> None:
        self.up = asyncio.Event()
        self.messages = 0
        self._messages_max = messages_max
        self._queue: deque[Frame] = deque()
        self._something = asyncio.Event()
        self._less = asyncio.Event()
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
        """Queue ``frame``; nothing happens once the stream has ended."""
        if self._closed:
            return
        self._queue.append(frame)
        self.messages += isinstance(frame, Payload)
        self._something.set()

    async def room(self) -> None:
        """Wait until a message can be put (or the stream has ended)."""
        while self.full and not self._closed:
            self._less.clear()
            await self._less.wait()

    async def flushed(self) -> None:
        """Wait until all has been written (or the stream has ended)."""
        while (self._queue or self._writing) and not self._closed:
            self._less.clear()
            await self._less.wait()

    async def write_all(self, write: Callable[[Frame], Awaitable[None]]) -> None:
        """Write what comes, in order, until cancelled or the stream breaks (its reader will notice)."""
        while True:
            while not self._queue:
                self._something.clear()
                await self._something.wait()
            frame = self._queue.popleft()
            self._writing = True
            try:
                await write(frame)
            except BaseException:
                self.close()
                raise
            self._writing = False
            self.messages -= isinstance(frame, Payload)
            self._less.set()

    def close(self) -> None:
        """The stream has ended: drop the queued frames and wake all waiters."""
        self._closed = True
        self.up.set()
        self._queue.clear()
        self.messages = 0
        self._less.set()
