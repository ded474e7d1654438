"""Threads of a limiter call back into the loop, where a coroutine needs a thread of the same limiter."""

import threading
import time

import anyio
import anyio.from_thread
import anyio.to_thread
from field_program import FAR_SECONDS, MODE, begin, join, stay

THREADS = 2
both = threading.Barrier(THREADS)


async def store(limiter: anyio.CapacityLimiter) -> None:
    if MODE == "limit":
        with anyio.fail_after(FAR_SECONDS):
            await anyio.to_thread.run_sync(time.sleep, FAR_SECONDS, limiter=limiter)
    await anyio.to_thread.run_sync(time.sleep, FAR_SECONDS, limiter=None if MODE == "other" else limiter)  # core: site x2


def handle(limiter: anyio.CapacityLimiter) -> None:
    both.wait()
    anyio.from_thread.run(store, limiter)  # core: site x2


async def main() -> None:
    limiter = anyio.CapacityLimiter(THREADS + (MODE == "more"))
    async with anyio.create_task_group() as group:  # core: site
        for _ in range(THREADS):
            group.start_soon(request, limiter)


async def request(limiter: anyio.CapacityLimiter) -> None:
    await anyio.to_thread.run_sync(handle, limiter, limiter=limiter)  # core: site x2


join("site")
begin(anyio.run, main)
stay()
