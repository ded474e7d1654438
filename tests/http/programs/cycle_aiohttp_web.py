"""The same, served by aiohttp itself."""

from __future__ import annotations

import asyncio
import sys

import aiohttp
from aiohttp import web

_lock = asyncio.Lock()


async def _ask(request: web.Request) -> web.Response:
    seconds = request.query.get("seconds")
    limit = aiohttp.ClientTimeout(total=None if seconds is None else float(seconds))
    async with aiohttp.ClientSession(timeout=limit) as client, client.get(request.query["next"]) as reply:
        return web.Response(text=await reply.text())


async def hold(request: web.Request) -> web.Response:
    async with _lock:
        return await _ask(request)


async def take(_: web.Request) -> web.Response:
    async with _lock:
        return web.Response(text="taken")


app = web.Application()
app.add_routes([web.get("/hold", hold), web.get("/pass", _ask), web.get("/take", take)])


async def _serve_for(seconds: float) -> None:
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", int(sys.argv[1])).start()
    await asyncio.sleep(seconds)
    await runner.cleanup()


if __name__ == "__main__":
    if len(sys.argv) > 2:  # and stops by itself then
        asyncio.run(_serve_for(float(sys.argv[2])))
    web.run_app(app, host="127.0.0.1", port=int(sys.argv[1]), print=None)
