"""Each request of a crawler takes a permit, and so does each page within it; there are as many requests as permits."""

import anyio
from field_program import FAR_SECONDS, MODE, begin, join, stay

REQUESTS = 2
PERMITS = REQUESTS + (MODE == "one_more")
permits = anyio.Semaphore(PERMITS, max_value=PERMITS)


async def page() -> None:
    if MODE == "limit":
        with anyio.fail_after(FAR_SECONDS):
            await permits.acquire()
    async with permits:  # core: crawler x2
        if MODE == "one_more":
            await anyio.sleep(FAR_SECONDS)


async def request() -> None:
    async with permits:
        await anyio.sleep(0.1)
        if MODE == "slow":
            await anyio.sleep(FAR_SECONDS)
        await page()


async def give_back() -> None:
    await anyio.sleep(FAR_SECONDS)
    permits.release()


async def main() -> None:
    async with anyio.create_task_group() as group:  # core: crawler
        for _ in range(REQUESTS):
            group.start_soon(request)
        if MODE == "released":
            group.start_soon(give_back)


join("crawler")
begin(anyio.run, main)
stay()
