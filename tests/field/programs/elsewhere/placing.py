"""A limiter: the place of a call is given back when the call is done, whoever began it has long ended."""

from __future__ import annotations

import asyncio


async def begin(places: asyncio.Semaphore, seconds: float, running: list[object]) -> None:
    await places.acquire()
    task = asyncio.create_task(asyncio.sleep(seconds))
    running.append(task)
    task.add_done_callback(lambda _: places.release())
