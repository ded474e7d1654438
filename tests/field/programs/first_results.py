"""A task takes its children's results as they come, within the semaphore that the children need."""

import asyncio

from field_program import FAR_SECONDS, MODE, begin, join, stay


async def fetch(permits: asyncio.Semaphore) -> None:
    async with permits:  # core: crawler x2
        await asyncio.sleep(FAR_SECONDS)


async def crawl(permits: asyncio.Semaphore) -> None:
    children = [asyncio.create_task(fetch(permits)) for _ in range(2)]
    if MODE == "cancelled":
        asyncio.get_running_loop().call_later(FAR_SECONDS, children[0].cancel)
    async with permits:
        for result in asyncio.as_completed(children, timeout=FAR_SECONDS if MODE == "limit" else None):
            await result  # core: crawler


async def main() -> None:
    permits = asyncio.Semaphore(2 if MODE == "one_more" else 1)
    await crawl(permits)


join("crawler")
begin(asyncio.run, main())
stay()
