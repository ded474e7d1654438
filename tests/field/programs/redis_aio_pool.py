"""A handler asks Redis for a key within a pipeline that holds the only connection of its pool."""

import asyncio
from typing import Any

import redis.asyncio
from field_program import FAR_SECONDS, MODE, REDIS, begin, join, stay
from served import Call, serve_aio

pools: list[Any] = []


async def reserve(request: bytes, context: Any) -> bytes:
    client = redis.asyncio.Redis(connection_pool=pools[0])
    async with client.pipeline() as pipe:
        await pipe.watch("shelf")
        if MODE == "slow":
            await asyncio.sleep(FAR_SECONDS)
        await client.get("shelf")  # core: stock
        if MODE == "one_more":
            await asyncio.sleep(FAR_SECONDS)
    return b""


async def main(client: Any) -> None:
    size, limit = (2 if MODE == "one_more" else 1), (FAR_SECONDS if MODE == "limit" else None)
    pools.append(redis.asyncio.BlockingConnectionPool.from_url(REDIS, max_connections=size, timeout=limit))
    await serve_aio(reserve, client)


def client(call: Call) -> None:
    begin(lambda: call(b""))  # behind: stock


join("stock")
begin(asyncio.run, main(client))
stay()
