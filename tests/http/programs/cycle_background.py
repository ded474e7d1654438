"""An ASGI application that asks another with a lock in hand after it has replied; it knows nothing of the agent."""

from __future__ import annotations

import asyncio
import threading

import httpx
import requests
from fastapi import BackgroundTasks, FastAPI

app = FastAPI()
_lock, _lock_of_threads = asyncio.Lock(), threading.Lock()


async def _ask(url: str, seconds: float | None) -> str:
    async with httpx.AsyncClient(timeout=seconds) as client:
        return (await client.get(url)).text


async def _ask_with_lock(url: str, seconds: float | None) -> None:
    async with _lock:
        await _ask(url, seconds)


def _ask_in_thread(url: str, seconds: float | None) -> None:
    with _lock_of_threads:
        requests.get(url, timeout=seconds)


@app.get("/hold")
async def hold(next: str, later: BackgroundTasks, seconds: float | None = None) -> str:
    later.add_task(_ask_with_lock, next, seconds)
    return "later"


@app.get("/hold-in-thread")
async def hold_in_thread(next: str, later: BackgroundTasks, seconds: float | None = None) -> str:
    later.add_task(_ask_in_thread, next, seconds)
    return "later"


@app.get("/pass")
async def pass_on(next: str, seconds: float | None = None) -> str:
    return await _ask(next, seconds)


@app.get("/take")
async def take() -> str:
    async with _lock:
        return "taken"


@app.get("/take-in-thread")
def take_in_thread() -> str:
    with _lock_of_threads:
        return "taken"
