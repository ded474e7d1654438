"""banteg/multicall.py 93: a batch of calls takes a share of a semaphore, and each of its calls takes one, too."""

import asyncio

from field_program import FAR_SECONDS, MODE, begin, join, stay

if MODE == "grows":
    from elsewhere import growing

BATCHES, CALLS = 2, 2
places = asyncio.Semaphore(BATCHES + 1 if MODE == "one_more" else BATCHES)
places_of_calls = asyncio.Semaphore(BATCHES) if MODE == "another" else places


async def call() -> None:
    async with places_of_calls:  # core: chain x4
        await asyncio.sleep(0)


async def batch() -> None:
    async with places:
        await asyncio.sleep(0.1)
        calls = asyncio.gather(*(call() for _ in range(CALLS)))
        await (asyncio.wait_for(calls, FAR_SECONDS) if MODE == "time_out" else calls)  # core: chain x2


async def main() -> None:
    tasks = [asyncio.create_task(batch()) for _ in range(BATCHES)]
    if MODE == "grows":
        tasks.append(asyncio.create_task(growing.grow(places, FAR_SECONDS)))
    await asyncio.gather(*tasks)  # core: chain


join("chain")
begin(lambda: asyncio.run(main()))
stay()
