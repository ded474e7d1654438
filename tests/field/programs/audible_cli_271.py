"""mkb79/audible-cli 271: each consumer ends with its first failure; the program waits until the rest of the queue is done."""

import asyncio

from field_program import FAR_SECONDS, MODE, begin, join, stay

QUEUE: "asyncio.Queue[str]" = asyncio.Queue()


async def consume() -> None:
    while True:
        job = await QUEUE.get()
        try:
            if MODE == "slow":
                await asyncio.sleep(FAR_SECONDS)
            raise RuntimeError(job)
        finally:
            QUEUE.task_done()


async def another() -> None:
    await asyncio.sleep(FAR_SECONDS)
    while not QUEUE.empty():
        QUEUE.get_nowait()
        QUEUE.task_done()


async def main() -> None:
    for job in ("one", "two", "three"):
        QUEUE.put_nowait(job)
    consumers = [asyncio.ensure_future(consume()) for _ in range(2)]
    if MODE == "another":
        consumers.append(asyncio.ensure_future(another()))
    async with asyncio.timeout(FAR_SECONDS if MODE == "limit" else None):
        await QUEUE.join()  # core: downloads
    for one in consumers:
        one.cancel()
    await asyncio.gather(*consumers, return_exceptions=True)


join("downloads")
begin(asyncio.run, main())
stay()
