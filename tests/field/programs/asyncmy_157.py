"""A pool is terminated while a task waits until its connections have come back; nobody notifies the task."""

import asyncio
from typing import Any

from field_program import FAR_SECONDS, MODE, begin, join, stay
from served import Call, serve_aio

kept: list[Any] = []


class Pool:
    """What matters of the library's pool."""

    def __init__(self) -> None:
        self._cond = asyncio.Condition()
        self._used: set[object] = set()

    async def acquire(self) -> object:
        async with self._cond:
            self._used.add(connection := object())
            return connection

    async def release(self, connection: object) -> None:
        async with self._cond:
            self._used.discard(connection)
            self._cond.notify()

    def terminate(self) -> None:
        self._used.clear()

    async def wait_closed(self) -> None:
        async with self._cond:
            while self._used:
                await self._cond.wait()  # core: shop


async def release_later(pool: Pool, connection: object) -> None:
    await asyncio.sleep(FAR_SECONDS)
    await pool.release(connection)


async def drain(request: bytes, context: Any) -> bytes:
    pool = Pool()
    connection = await pool.acquire()
    if MODE == "released":
        kept.append(asyncio.create_task(release_later(pool, connection)))
    closing = asyncio.create_task(pool.wait_closed())
    await asyncio.sleep(0)
    pool.terminate()
    if MODE == "limit":
        await asyncio.wait_for(closing, FAR_SECONDS)
    await closing  # core: shop
    return b""


def client(call: Call) -> None:
    begin(lambda: call(b""))  # behind: shop


join("shop")
begin(asyncio.run, serve_aio(drain, client))
stay()
