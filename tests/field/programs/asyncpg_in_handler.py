"""A handler that has the only connection of a pool, on which it has run a query with arguments, asks the pool for another."""

import asyncio
from typing import Any

import asyncpg
import grpc
import grpc.aio
from field_program import FAR_SECONDS, MODE, POSTGRES, begin, join, stay


class Shop:
    """Its handlers use a pool of database connections."""

    def __init__(self, pool: asyncpg.Pool) -> None:
        self.pool = pool
        self.orders: set[Any] = set()
        self.lent: list[Any] = []

    async def order(self, request: bytes, context: Any) -> bytes:
        if MODE == "may_cancel":
            self.orders.add(asyncio.current_task())
        async with self.pool.acquire() as connection:
            await connection.fetch("SELECT $1::int", 1)
            if MODE == "may_return":
                self.lent.append(connection)
            elif MODE == "timer":
                loop = asyncio.get_running_loop()
                loop.call_later(FAR_SECONDS, lambda: asyncio.ensure_future(self.pool.release(connection)))
            elif MODE == "slow":
                await asyncio.sleep(FAR_SECONDS)
            await self.audit()
        return b""

    async def audit(self) -> None:
        timeout = FAR_SECONDS if MODE == "limit" else None
        async with self.pool.acquire(timeout=timeout) as connection:  # core: shop
            await connection.fetch("SELECT $1::int", 2)

    async def end(self, request: bytes, context: Any) -> bytes:
        for task in self.orders:
            task.cancel()
        for connection in self.lent:
            await self.pool.release(connection)
        return b""


async def main() -> None:
    pool = await asyncpg.create_pool(POSTGRES, min_size=1, max_size=2 if MODE == "one_more" else 1)
    shop = Shop(pool)
    server = grpc.aio.server()
    handlers = {"Order": grpc.unary_unary_rpc_method_handler(shop.order)}
    if MODE in ("may_cancel", "may_return"):
        handlers["End"] = grpc.unary_unary_rpc_method_handler(shop.end)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("Shop", handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    call = grpc.insecure_channel(f"127.0.0.1:{port}").unary_unary("/Shop/Order")
    begin(lambda: call(b""))  # behind: shop
    await server.wait_for_termination()


join("shop")
begin(asyncio.run, main())
stay()
