"""An item of an executor runs an event loop of its own, and a coroutine there wants a thread of the same executor."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

from field_program import FAR_SECONDS, MODE, begin, join, stay

FAR, running = threading.Event(), threading.Event()
threads = ThreadPoolExecutor(2 if MODE == "two_threads" else 1)
elsewhere = ThreadPoolExecutor(1)
tasks: list[asyncio.Task[int]] = []


def read() -> int:
    return 1


async def fetch() -> int:
    loop = asyncio.get_running_loop()
    tasks.extend(asyncio.all_tasks())
    running.set()
    reading = loop.run_in_executor(elsewhere if MODE == "elsewhere" else threads, read)
    if MODE == "time_out":
        return await asyncio.wait_for(reading, FAR_SECONDS)
    return await reading  # core: agent


def tool() -> int:
    """What a library offers to those who have no event loop."""
    return asyncio.run(fetch())  # core: agent


async def answer() -> int:
    return await asyncio.get_running_loop().run_in_executor(threads, tool)  # behind: agent


def watch() -> None:
    running.wait()
    FAR.wait(FAR_SECONDS)
    loop = tasks[0].get_loop()
    loop.call_soon_threadsafe(loop.stop if MODE == "stopped" else tasks[0].cancel)


join("agent")
if MODE in ("stopped", "cancelled"):
    begin(watch)
begin(asyncio.run, answer())
stay()
