"""A task notifies a condition before another task awaits it: the notification is lost, and none follows."""

import asyncio

from field_program import FAR_SECONDS, MODE, begin, join, stay


async def consume(ready: asyncio.Condition, done: asyncio.Event) -> None:
    await done.wait()
    async with ready:
        if MODE == "limit":
            await asyncio.wait_for(ready.wait(), FAR_SECONDS)
        await ready.wait()  # core: pipeline


async def produce(ready: asyncio.Condition, done: asyncio.Event) -> None:
    async with ready:
        ready.notify_all()
    done.set()
    if MODE == "again":
        await asyncio.sleep(FAR_SECONDS)
        async with ready:
            ready.notify_all()


async def main() -> None:
    ready, done = asyncio.Condition(), asyncio.Event()
    await asyncio.gather(consume(ready, done), produce(ready, done))  # core: pipeline


join("pipeline")
begin(asyncio.run, main())
stay()
