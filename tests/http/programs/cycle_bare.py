"""An ASGI application of no framework that asks another with a lock in hand; it knows nothing of the agent."""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import parse_qsl

import httpx

_lock = asyncio.Lock()


async def app(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] == "lifespan":
        for done in ("startup", "shutdown"):
            await receive()
            await send({"type": f"lifespan.{done}.complete"})
        return
    text = await _answer(scope["path"], dict(parse_qsl(scope["query_string"].decode())))
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
    await send({"type": "http.response.body", "body": text.encode()})


async def _answer(path: str, asked: dict[str, str]) -> str:
    if path == "/hold":
        async with _lock:
            return await _ask(asked)
    if path == "/pass":
        return await _ask(asked)
    if path == "/take":
        async with _lock:
            return "taken"
    return "?"


async def _ask(asked: dict[str, str]) -> str:
    seconds = asked.get("seconds")
    async with httpx.AsyncClient(timeout=None if seconds is None else float(seconds)) as client:
        return (await client.get(asked["next"])).text
