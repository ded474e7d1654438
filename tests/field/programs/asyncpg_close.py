"""A coroutine closes the pool of which it still has a connection: `close()` waits until all have been released."""

import asyncio

import asyncpg
from field_program import FAR_SECONDS, MODE, POSTGRES, join, ready


async def report(pool: asyncpg.Pool) -> None:
    async with pool.acquire() as connection:
        await connection.execute("SELECT 1")
        if MODE == "slow":
            await asyncio.sleep(FAR_SECONDS)
        if MODE == "terminated":
            asyncio.get_running_loop().call_later(FAR_SECONDS, pool.terminate)
        if MODE == "time_out":
            await asyncio.wait_for(pool.close(), FAR_SECONDS)
        ready()
        await pool.close()  # core: site


async def export(pool: asyncpg.Pool) -> None:
    connection = await pool.acquire()

    async def release_later() -> None:
        await asyncio.sleep(FAR_SECONDS)
        await pool.release(connection)

    releasing = asyncio.create_task(release_later())
    ready()
    await pool.close()
    await releasing


async def main() -> None:
    pool = await asyncpg.create_pool(POSTGRES, min_size=1, max_size=2)
    if MODE == "released":
        await export(pool)
    if MODE in ("slow", "time_out"):
        asyncio.get_running_loop().call_later(0.5, ready)
    await report(pool)


join("site")
asyncio.run(main())
