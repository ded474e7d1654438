"""dynamiq-ai/dynamiq 673: a coroutine awaits under a threading lock, and another blocks the loop at it."""

import asyncio
import threading

from field_program import FAR_SECONDS, MODE, begin, join, stay

closing = threading.Event()


class Clients:
    """Has one client for each loop."""

    def __init__(self) -> None:
        self.mutex = threading.Lock()

    async def close_old(self) -> None:
        closing.set()
        await asyncio.sleep(0.1)  # core: flow

    async def client(self) -> None:
        if MODE == "patience" and closing.is_set():
            self.mutex.acquire(timeout=FAR_SECONDS)
        if MODE == "slow" and closing.is_set():
            await asyncio.sleep(FAR_SECONDS)
        with self.mutex:  # core: flow
            await self.close_old()


def release_later(mutex: threading.Lock) -> None:
    threading.Event().wait(FAR_SECONDS)
    mutex.release()


async def run() -> None:
    clients = Clients()
    if MODE == "released":
        begin(release_later, clients.mutex)
    await asyncio.gather(clients.client(), clients.client())  # core: flow


if __name__ == "__main__":
    join("flow")
    begin(asyncio.run, run())
    closing.wait()
    stay()
