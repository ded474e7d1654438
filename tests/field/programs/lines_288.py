"""A producer fails before it puts its last item; the consumer awaits it, and the program awaits both."""

import asyncio

from field_program import FAR_SECONDS, MODE, begin, join, stay


async def produce(items: "asyncio.Queue[int]") -> None:
    await items.put(1)
    if MODE == "slow":
        await asyncio.sleep(FAR_SECONDS)
        await items.put(2)
    raise RuntimeError("the page cannot be read")


async def consume(items: "asyncio.Queue[int]") -> None:
    await items.get()
    if MODE == "limit":
        await asyncio.wait_for(items.get(), FAR_SECONDS)
    await items.get()  # core: etl


async def main() -> None:
    items: asyncio.Queue[int] = asyncio.Queue()
    tasks = [asyncio.create_task(produce(items)), asyncio.create_task(consume(items))]
    del items
    await asyncio.gather(*tasks, return_exceptions=True)  # core: etl


join("etl")
begin(asyncio.run, main())
stay()
