"""mcdonc/klangk 690: connections leak on the path of an error, until nobody gets one any more."""

import asyncio
import gc
import weakref

import asyncpg
from field_program import FAR_SECONDS, MODE, POSTGRES, join, ready
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine

CONNECTIONS = 2
kept = []
watched = []


class InvalidTokenError(Exception):
    """What the request was refused for."""


async def is_blocklisted(pool: asyncpg.Pool, token: str) -> bool:
    connection = await pool.acquire()
    if MODE == "kept" and token == "bad 0":
        kept.append(connection)
    if MODE == "weakly" and token == "bad 0":
        watched.append(weakref.ref(connection._holder))
    if token.startswith("bad"):
        raise InvalidTokenError(token)  # and the connection is not released
    found = await connection.fetchval("SELECT $1 = 'blocked'", token)
    await pool.release(connection)
    return found


async def refused(pool: asyncpg.Pool, token: str) -> None:
    task = asyncio.create_task(is_blocklisted(pool, token))
    await asyncio.wait([task])
    if MODE == "traceback" and token == "bad 0":
        kept.append(task)
    else:
        task.exception()


async def request(pool: asyncpg.Pool, number: int) -> None:
    timeout = FAR_SECONDS if MODE == "time_out" else None
    async with pool.acquire(timeout=timeout) as connection:  # core: api x2
        await connection.fetchval("SELECT $1::int", number)


async def release_what_is_left_over(pool: asyncpg.Pool) -> None:
    await asyncio.sleep(FAR_SECONDS)
    for weak in watched:
        holder = weak()
        if holder is not None and holder._proxy is not None:
            await pool.release(holder._proxy)


async def long_running(pool: asyncpg.Pool) -> None:
    async with pool.acquire():
        await asyncio.sleep(FAR_SECONDS)


async def with_sqlalchemy() -> None:
    engine = create_async_engine(
        POSTGRES.replace("postgresql:", "postgresql+asyncpg:"), pool_size=1, max_overflow=0, pool_timeout=None
    )
    connection = await engine.connect()
    await connection.execute(text("SELECT 1"))
    cycle = [connection]
    cycle.append(cycle)
    del connection, cycle  # collected later, and given back then
    async with engine.connect() as other:
        await other.execute(text("SELECT 2"))


async def main() -> None:
    if MODE == "collected":
        gc.disable()
        ready()
        await with_sqlalchemy()
    pool = await asyncpg.create_pool(POSTGRES, min_size=CONNECTIONS, max_size=CONNECTIONS)
    busy = [asyncio.create_task(long_running(pool))] if MODE == "one_left" else []
    await asyncio.sleep(0)
    for number in range(CONNECTIONS - len(busy)):
        await refused(pool, f"bad {number}")
    if MODE == "weakly":
        busy.append(asyncio.create_task(release_what_is_left_over(pool)))
    ready()
    await asyncio.gather(*(request(pool, number) for number in range(CONNECTIONS)), *busy)  # behind: api


join("api")
asyncio.run(main())
