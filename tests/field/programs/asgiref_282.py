"""django/asgiref 282: a wait, and what would end it, run on one thread. Here: an executor of one thread, as asgiref's is."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

from field_program import FAR_SECONDS, MODE, begin, join, stay


def wait_for(event: threading.Event) -> None:
    event.wait(FAR_SECONDS if MODE == "time_out" else None)  # core: consumer


def set_later(event: threading.Event) -> None:
    threading.Event().wait(FAR_SECONDS)
    event.set()


async def receive(executor: ThreadPoolExecutor, event: threading.Event) -> None:
    """Comes later, from outside."""
    await asyncio.sleep(0.1)
    await asyncio.get_running_loop().run_in_executor(executor, event.set)  # core: consumer


async def consume() -> None:
    executor, event = ThreadPoolExecutor(2 if MODE == "two_threads" else 1), threading.Event()
    if MODE == "by_thread":
        begin(set_later, event)
    received = asyncio.create_task(receive(executor, event))
    waiting = asyncio.get_running_loop().run_in_executor(executor, wait_for, event)
    del event
    await asyncio.wait([received, waiting])  # core: consumer


join("consumer")
begin(lambda: asyncio.run(consume()))
stay()
