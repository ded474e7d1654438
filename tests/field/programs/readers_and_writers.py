"""Two tasks each change one table and read the other, under the tables' locks for readers and writers."""

import asyncio

import aiorwlock
from field_program import FAR_SECONDS, MODE, begin, join, stay


async def change(own: aiorwlock.RWLock, other: aiorwlock.RWLock) -> None:
    async with own.writer_lock:
        await asyncio.sleep(0.1)
        if MODE == "limit":
            await asyncio.wait_for(other.reader_lock.acquire(), FAR_SECONDS)
        async with other.reader_lock:  # core: tables x2
            await asyncio.sleep(FAR_SECONDS)


async def cancel_later(task: "asyncio.Task[None]") -> None:
    await asyncio.sleep(FAR_SECONDS)
    task.cancel()


async def main() -> None:
    orders, stock = aiorwlock.RWLock(), aiorwlock.RWLock()
    first = asyncio.create_task(change(orders, stock))
    second = asyncio.create_task(change(stock, stock if MODE == "own_table" else orders))
    others = [asyncio.create_task(cancel_later(first))] if MODE == "cancelled" else []
    await asyncio.gather(first, second, *others)  # core: tables


join("tables")
begin(lambda: asyncio.run(main()))
stay()
