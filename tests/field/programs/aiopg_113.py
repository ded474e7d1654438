"""aio-libs/aiopg 113: connections are acquired in a nested manner, from a pool that has no timeout."""

import asyncio

import aiopg
from field_program import FAR_SECONDS, MODE, POSTGRES, join, ready

TASKS = 2


async def query_two(pool: aiopg.Pool) -> None:
    async with pool.acquire() as connection:  # core: site x2
        async with connection.cursor() as cursor:
            await cursor.execute("SELECT 2")


async def query_one(pool: aiopg.Pool) -> None:
    async with pool.acquire() as connection:
        while len(pool._used) < TASKS:
            await asyncio.sleep(0.01)
        if MODE == "callback":
            other = asyncio.ensure_future(asyncio.sleep(FAR_SECONDS))
            other.add_done_callback(lambda _: pool.release(connection))
        if MODE == "wait_for":
            await asyncio.wait_for(query_two(pool), FAR_SECONDS)
        await query_two(pool)


async def main() -> None:
    pool = await aiopg.create_pool(POSTGRES, minsize=TASKS, maxsize=TASKS + 1 if MODE == "one_more" else TASKS, timeout=60)
    tasks = [asyncio.ensure_future(query_one(pool)) for _ in range(TASKS)]
    ready()
    await asyncio.wait(tasks)  # core: site
    await asyncio.sleep(FAR_SECONDS)


join("site")
asyncio.run(main())
