"""atmire/dspace-python-client 6: tasks lower the concurrency by taking permits for good, each within a permit of its own."""

import asyncio

from field_program import FAR_SECONDS, MODE, begin, join, stay


class Concurrency:
    """A number of permits that falls when the server is slow."""

    def __init__(self, permits: int) -> None:
        self.permits, self.free = permits, asyncio.Semaphore(permits)

    async def reduce(self) -> None:
        if self.permits > 1:
            async with asyncio.timeout(FAR_SECONDS if MODE == "limit" else None):
                await self.free.acquire()  # core: uploads x2
            self.permits -= 1

    async def raise_later(self) -> None:
        await asyncio.sleep(FAR_SECONDS)
        self.permits += 1
        self.free.release()


async def upload(concurrency: Concurrency) -> None:
    async with concurrency.free:
        await asyncio.sleep(FAR_SECONDS if MODE == "slow" else 0.1)
        await concurrency.reduce()


async def main() -> None:
    concurrency = Concurrency(2)
    tasks = [asyncio.create_task(upload(concurrency)) for _ in range(2)]
    tasks += [asyncio.create_task(concurrency.raise_later())] if MODE == "raised" else []
    await asyncio.gather(*tasks)  # core: uploads


join("uploads")
begin(asyncio.run, main())
stay()
