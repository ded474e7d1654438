"""EvoScientist/EvoScientist 284: each server's task keeps a permit for its session; the start waits for more servers."""

import asyncio

from field_program import FAR_SECONDS, MODE, begin, join, stay

SERVERS = ("files", "search", "shell")
PERMITS = 2 + (MODE == "one_more")


async def keep(ready: dict[str, "asyncio.Future[str]"], name: str, permits: asyncio.Semaphore, stop: asyncio.Event) -> None:
    async with permits:  # core: tools
        await asyncio.sleep(FAR_SECONDS if MODE == "slow" else 0.1)
        ready[name].set_result(name)
        await stop.wait()  # core: tools x2


async def fail(future: "asyncio.Future[str]") -> None:
    await asyncio.sleep(FAR_SECONDS)
    future.set_exception(TimeoutError())


async def start() -> None:
    loop = asyncio.get_running_loop()
    ready = {name: loop.create_future() for name in SERVERS}
    permits, stop = asyncio.Semaphore(PERMITS), asyncio.Event()
    tasks = [asyncio.create_task(keep(ready, name, permits, stop)) for name in SERVERS]
    everything = asyncio.gather(*ready.values())
    if MODE == "timer":
        loop.call_later(FAR_SECONDS, everything.cancel)
    if MODE == "later":
        loop.call_later(FAR_SECONDS, ready["shell"].set_result, "")
    if MODE == "failed":
        tasks.append(asyncio.create_task(fail(ready["shell"])))
    if MODE == "limit":
        async with asyncio.timeout(FAR_SECONDS):
            await everything
    await everything  # core: tools
    if MODE == "one_more":
        await asyncio.sleep(FAR_SECONDS)
    stop.set()
    await asyncio.gather(*tasks)


join("tools")
begin(asyncio.run, start())
stay()
