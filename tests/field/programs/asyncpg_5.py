"""MagicStack/asyncpg 5: a coroutine acquires a connection while it has one, under load."""

import asyncio

import asyncpg
from field_program import FAR_SECONDS, MODE, POSTGRES, join, ready

REQUESTS = 3


async def audit(pool: asyncpg.Pool, what: str) -> None:
    timeout = FAR_SECONDS if MODE == "time_out" else None
    async with pool.acquire(timeout=timeout) as connection:  # core: shop x3
        await connection.execute("SELECT $1::text", what)


async def request(pool: asyncpg.Pool, number: int, lent: asyncio.Queue) -> None:
    if MODE == "handed_over" and number == 0:
        connection = await pool.acquire()
        await lent.put(connection)
        await audit(pool, f"request {number}")
        return
    async with pool.acquire() as connection:
        await connection.execute("SELECT 1")
        while pool.get_idle_size():
            await asyncio.sleep(0.01)
        if MODE == "call_later" and number == 0:
            loop = asyncio.get_running_loop()
            loop.call_later(FAR_SECONDS, lambda: asyncio.ensure_future(pool.release(connection)))
        await audit(pool, f"request {number}")


async def return_what_was_lent(pool: asyncpg.Pool, lent: asyncio.Queue) -> None:
    """Gives back the connections that others have lent."""
    await asyncio.sleep(FAR_SECONDS)
    while True:
        await pool.release(await lent.get())


async def terminate_later(pool: asyncpg.Pool) -> None:
    await asyncio.sleep(FAR_SECONDS)
    pool.terminate()


async def main() -> None:
    settings = {"idle_in_transaction_session_timeout": "60000"} if MODE == "server_ends_it" else None
    size = REQUESTS + 1 if MODE == "one_more" else REQUESTS
    pool = await asyncpg.create_pool(POSTGRES, min_size=size, max_size=size, server_settings=settings)
    lent: asyncio.Queue = asyncio.Queue()
    others = [return_what_was_lent(pool, lent)] if MODE == "handed_over" else []
    others += [terminate_later(pool)] if MODE == "terminated" else []
    ready()
    requests = [request(pool, one, lent) for one in range(REQUESTS)]
    await asyncio.gather(*requests, *others, return_exceptions=True)  # core: shop
    await asyncio.sleep(FAR_SECONDS)


join("shop")
asyncio.run(main())
