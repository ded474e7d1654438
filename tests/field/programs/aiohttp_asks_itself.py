"""A handler asks its own server through the session by which it was asked itself, and which has only one connection."""

import asyncio

import aiohttp
import aiohttp.web
from field_program import FAR_SECONDS, MODE, begin, join, stay


class Shop:
    """Its handlers share a session."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self.session = session

    async def total(self, request: aiohttp.web.Request) -> aiohttp.web.Response:
        if MODE == "slow":
            await asyncio.sleep(FAR_SECONDS)
        async with self.session.get(request.url.with_path("/price")) as price:  # core: shop
            return aiohttp.web.Response(text=await price.text())

    async def price(self, request: aiohttp.web.Request) -> aiohttp.web.Response:
        if MODE == "room":
            await asyncio.sleep(FAR_SECONDS)
        return aiohttp.web.Response(text="7")


async def close_later(session: aiohttp.ClientSession) -> None:
    await asyncio.sleep(FAR_SECONDS)
    await session.close()


async def main() -> None:
    timeout = aiohttp.ClientTimeout(total=FAR_SECONDS if MODE == "limit" else None)
    connector = aiohttp.TCPConnector(limit=2 if MODE == "room" else 1)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
        shop = Shop(session)
        application = aiohttp.web.Application()
        application.router.add_get("/total", shop.total)
        application.router.add_get("/price", shop.price)
        runner = aiohttp.web.AppRunner(application)
        await runner.setup()
        site = aiohttp.web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        closing = asyncio.create_task(close_later(session)) if MODE == "closed" else None
        async with session.get(f"http://127.0.0.1:{runner.addresses[0][1]}/total") as total:  # core: shop
            print(await total.text())
        assert closing is None or not closing.done()


join("shop")
begin(asyncio.run, main())
stay()
