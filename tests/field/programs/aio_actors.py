"""Two actors with a task and a mailbox each: each asks the other, and awaits the reply while its mailbox fills."""

import asyncio
from typing import Any

from field_program import FAR_SECONDS, MODE, begin, join, stay
from served import serve_aio


class Actor:
    """Handles one message at a time, in its own task."""

    def __init__(self, name: str) -> None:
        self.mailbox: asyncio.Queue[tuple[int, asyncio.Future[bytes]]] = asyncio.Queue()
        self.other = self
        self.task = asyncio.create_task(self.run(), name=name)

    async def ask(self, message: int) -> bytes:
        reply: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        await self.mailbox.put((message, reply))
        if MODE == "time_out":
            async with asyncio.timeout(FAR_SECONDS):
                return await reply
        return await reply  # core: shop x2 # behind: shop

    async def run(self) -> None:
        while True:
            message, reply = await self.mailbox.get()
            try:
                reply.set_result(await self.handle(message))
            except Exception as error:  # noqa: BLE001 - the asker gets it
                reply.set_exception(error)

    async def handle(self, message: int) -> bytes:
        if MODE == "slow" and message == 1:
            await asyncio.sleep(FAR_SECONDS)
        if MODE == "beside" and message == 1:
            asyncio.create_task(self.run())  # noqa: RUF006 - the loop keeps it while it waits for the mailbox
        return await self.other.ask(message + 1)


class TimedActor(Actor):
    """Awaits each reply for a time."""

    async def ask(self, message: int) -> bytes:
        reply: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_later(FAR_SECONDS, reply.cancel)
        await self.mailbox.put((message, reply))
        return await reply


async def main() -> None:
    kind = TimedActor if MODE == "timer" else Actor
    orders, stock = kind("orders"), kind("stock")
    orders.other, stock.other = stock, orders

    async def order(request: bytes, context: Any) -> bytes:
        return await orders.ask(0)

    async def cancel_later() -> None:
        await asyncio.sleep(FAR_SECONDS)
        stock.task.cancel()

    watchdog = asyncio.create_task(cancel_later()) if MODE == "watched" else None
    await serve_aio(order, lambda call: begin(lambda: call(b"")))  # behind: shop
    assert watchdog is None or not watchdog.done()


join("shop")
begin(asyncio.run, main())
stay()
