"""A crawler waits for its workers, which wait for the next page; the last page has been read, and nobody tells them."""

import asyncio

from field_program import FAR_SECONDS, MODE, begin, join, stay


class Crawler:
    """Reads pages in a few tasks; what a page links to is read as well."""

    def __init__(self) -> None:
        self.pages: asyncio.Queue[int] = asyncio.Queue()

    async def work(self) -> None:
        while True:
            page = await self.pages.get()  # core: crawler x2
            if MODE == "slow":
                await asyncio.sleep(FAR_SECONDS)
            if page < 5:
                self.pages.put_nowait(page + 1)

    async def cancel_later(self, workers: "list[asyncio.Task[None]]") -> None:
        await asyncio.sleep(FAR_SECONDS)
        for worker in workers:
            worker.cancel()

    async def forever(self) -> None:
        await asyncio.Event().wait()

    async def crawl(self) -> None:
        self.pages.put_nowait(1)
        workers = [asyncio.create_task(self.work()) for _ in range(2)]
        others = [asyncio.create_task(self.cancel_later(workers))] if MODE == "cancelled" else []
        others += [asyncio.create_task(self.forever())] if MODE == "serves" else []
        async with asyncio.timeout(FAR_SECONDS if MODE == "limit" else None):
            await asyncio.gather(*workers, *others)  # core: crawler


join("crawler")
begin(asyncio.run, Crawler().crawl())
stay()
