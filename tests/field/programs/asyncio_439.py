"""A coroutine calls, inside a lock, a method that takes the same lock: asyncio's lock is not reentrant."""

import asyncio

from field_program import FAR_SECONDS, MODE, begin, join, stay


class Session:
    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.other = asyncio.Lock()
        self.token = ""

    async def request(self) -> None:
        async with self.lock:
            if MODE == "slow":
                await asyncio.sleep(FAR_SECONDS)
            if MODE == "limit":
                await asyncio.wait_for(self.renew(), FAR_SECONDS)
            await self.renew()

    async def renew(self) -> None:
        async with self.other if MODE == "another_lock" else self.lock:  # core: api
            self.token = "new"
        await asyncio.sleep(FAR_SECONDS)


async def main() -> None:
    session = Session()
    if MODE == "watchdog":
        asyncio.get_running_loop().call_later(FAR_SECONDS, session.lock.release)
    await asyncio.create_task(session.request(), name="request")  # core: api


join("api")
begin(asyncio.run, main())
stay()
