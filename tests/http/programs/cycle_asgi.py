"""An ASGI application that asks another with a lock in hand; it knows nothing of the agent, nor of its server."""

from __future__ import annotations

import asyncio

import httpx
from fastapi import FastAPI

app = FastAPI()
_lock = asyncio.Lock()


async def _ask(url: str, seconds: float | None) -> str:
    async with httpx.AsyncClient(timeout=seconds) as client:
        return (await client.get(url)).text


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
