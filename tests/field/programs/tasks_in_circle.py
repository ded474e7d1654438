"""Two tasks of an initialization await each other."""

import asyncio

from field_program import FAR_SECONDS, MODE, begin, join, stay

tasks: dict[str, asyncio.Task[None]] = {}


async def start(name: str, needed: str) -> None:
    await asyncio.sleep(0.1)
    if MODE == "slow" and name == "cache":
        await asyncio.sleep(FAR_SECONDS)
    if MODE == "limit" and name == "cache":
        await asyncio.wait_for(asyncio.shield(tasks[needed]), FAR_SECONDS)
    await tasks[needed]  # core: service x2


async def cancel_later() -> None:
    await asyncio.sleep(FAR_SECONDS)
    tasks["cache"].cancel()


async def main() -> None:
    tasks["cache"] = asyncio.create_task(start("cache", "store"))
    tasks["store"] = asyncio.create_task(start("store", "cache"))
    if MODE == "watchdog":
        tasks["watchdog"] = asyncio.create_task(cancel_later())
    await asyncio.gather(tasks["cache"], tasks["store"])  # core: service


join("service")
begin(asyncio.run, main())
stay()
