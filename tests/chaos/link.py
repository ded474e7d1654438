"""A link on loopback that can be cut, slowed, or left half open: an asyncio TCP proxy."""

from __future__ import annotations

import asyncio
import contextlib
from enum import Enum

CHUNK_BYTES = 65_536
SLOW_SECONDS = 0.1


class State(Enum):
    """What becomes of bytes and of new connections."""

    WHOLE = "whole"
    SLOW = "slow"
    HALF_OPEN = "half open"
    CUT = "cut"


class Link:
    """Joins each connection to ``target`` (a port)."""

    def __init__(self, target: int) -> None:
        self.state = State.WHOLE
        self.port = 0
        self._target = target
        self._open: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None
        self._passes = asyncio.Event()
        self._passes.set()

    async def start(self) -> Link:
        self._server = await asyncio.start_server(self._join, "127.0.0.1", 0)
        self.port = int(self._server.sockets[0].getsockname()[1])
        return self

    def set(self, state: State) -> None:
        self.state = state
        if state is State.HALF_OPEN:
            self._passes.clear()
        else:
            self._passes.set()
        if state is State.CUT:
            for writer in list(self._open):
                writer.transport.abort()

    def close(self) -> None:
        self.set(State.CUT)
        if self._server is not None:
            self._server.close()

    async def _join(self, near_in: asyncio.StreamReader, near_out: asyncio.StreamWriter) -> None:
        if self.state is State.CUT:
            near_out.transport.abort()
            return
        try:
            far_in, far_out = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            near_out.transport.abort()
            return
        self._open |= {near_out, far_out}
        await asyncio.gather(self._pass(near_in, far_out), self._pass(far_in, near_out))
        self._open -= {near_out, far_out}

    async def _pass(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(CHUNK_BYTES):
                await self._passes.wait()
                if self.state is State.SLOW:
                    await asyncio.sleep(SLOW_SECONDS)
                target.write(data)
                await target.drain()
        target.close()
