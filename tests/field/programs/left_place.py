"""A task takes a place of a limit, and returns early without giving it back: all others wait for ever."""

import asyncio

from field_program import FAR_SECONDS, MODE, join, ready

if MODE == "called_back":
    from elsewhere import placing

PLACES = 2
later: list[object] = []


class Limit:
    """How many requests the remote side takes at once."""

    def __init__(self) -> None:
        self.places = asyncio.Semaphore(PLACES)

    async def fetch(self, url: str) -> str:
        await self.places.acquire()  # core: crawler x2
        if url.startswith("bad"):
            return ""  # and the place is not given back
        if url.startswith("slow"):
            await asyncio.sleep(FAR_SECONDS)
        self.places.release()
        return url


async def main() -> None:
    limit = Limit()
    if MODE == "called_back":
        for _ in range(PLACES):
            await placing.begin(limit.places, FAR_SECONDS, later)
    else:
        slow = [asyncio.create_task(limit.fetch("slow"))] if MODE == "slow" else []
        await asyncio.gather(*(limit.fetch(f"bad {number}") for number in range(PLACES - len(slow))))
        await asyncio.sleep(0)
    ready()
    await asyncio.gather(*(limit.fetch(f"good {number}") for number in range(2)))  # behind: crawler


join("crawler")
asyncio.run(main())
