"""The same, which asks by aiohttp: its functions release replies, which are no locks."""

from __future__ import annotations

import asyncio
import sys

import aiohttp
import uvicorn
from fastapi import FastAPI

app = FastAPI()
_lock = asyncio.Lock()


async def _ask(url: str, seconds: float | None) -> str:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=seconds)) as client, client.get(url) as reply:
        return await reply.text()


@app.get("/hold")
async def hold(next: str, seconds: float | None = None) -> str:
    async with _lock:
        return await _ask(next, seconds)


@app.get("/pass")
async def pass_on(next: str, seconds: float | None = None) -> str:
    return await _ask(next, seconds)


@app.get("/take")
async def take() -> str:
    async with _lock:
        return "taken"


if __name__ == "__main__":
    uvicorn.run(app, port=int(sys.argv[1]), log_level="error")
