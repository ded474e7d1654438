"""mozilla/release-services 2228: a coroutine blocks its loop in ``queue.get()``, which another coroutine of the loop feeds."""

import asyncio
import queue
import threading

from field_program import FAR_SECONDS, MODE, begin, join, stay


class Bus:
    """The queues between the parts of a listener."""

    def __init__(self) -> None:
        self.builds: queue.Queue[str] = queue.Queue()

    async def receive(self) -> str:
        if MODE == "in_thread":
            return await asyncio.to_thread(self.builds.get)
        return self.builds.get(timeout=FAR_SECONDS if MODE == "time_out" else None)  # core: listener

    def feed_later(self) -> None:
        threading.Event().wait(FAR_SECONDS)
        self.builds.put("from a thread")


async def clone(bus: Bus) -> None:
    """Prepares a repository, then tells of the build."""
    await asyncio.sleep(FAR_SECONDS if MODE == "in_thread" else 0.1)  # core: listener
    bus.builds.put("cloned")


async def review(bus: Bus) -> None:
    await asyncio.sleep(0)
    await bus.receive()


async def main() -> None:
    bus = Bus()
    if MODE == "fed_by_thread":
        begin(bus.feed_later)
    tasks = [asyncio.create_task(clone(bus)), asyncio.create_task(review(bus))]
    del bus
    await asyncio.wait(tasks)  # core: listener


join("listener")
begin(lambda: asyncio.run(main()))
stay()
