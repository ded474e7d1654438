"""A client refreshes its token by `asyncio.run` while it holds its lock; a thread of the request needs the lock."""

import asyncio
import sys
import threading
from collections.abc import Callable

from field_program import FAR_SECONDS, MODE, begin, join, stay


class Client:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.token = ""

    def headers(self) -> "dict[str, str]":
        if MODE == "limit":
            self.lock.acquire(timeout=FAR_SECONDS)
            self.lock.release()
        with self.lock:  # core: client
            return {"authorization": self.token}

    async def ask(self) -> None:
        if MODE == "slow":
            await asyncio.sleep(FAR_SECONDS)
        if MODE in LATER:
            asyncio.create_task(LATER[MODE](asyncio.current_task())).add_done_callback(print)
        async with asyncio.timeout(FAR_SECONDS if MODE == "timeout" else None):
            await asyncio.to_thread(self.headers)  # core: client

    def refresh(self) -> None:
        with self.lock:
            asyncio.run(self.ask())  # core: client


async def cancel(task: "asyncio.Task[None]") -> None:
    await asyncio.sleep(FAR_SECONDS)
    task.cancel()


async def stop(task: "asyncio.Task[None]") -> None:
    await asyncio.sleep(FAR_SECONDS)
    task.get_loop().stop()


async def leave(_: object) -> None:
    await asyncio.sleep(FAR_SECONDS)
    sys.exit("the request takes too long")


LATER: "dict[str, Callable[..., object]]" = {"cancelled": cancel, "stopped": stop, "left": leave}


join("client")
begin(Client().refresh)
stay()
