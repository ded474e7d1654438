"""openai/openai-agents-python 4199: a handler's CancelledError ends the consumer of events; a stream waits for the rest."""

import asyncio

from field_program import FAR_SECONDS, MODE, begin, join, stay


class Stream:
    """Events, which a task gives to a handler. A handler's error is logged, and the next event follows."""

    def __init__(self) -> None:
        self.events: asyncio.Queue[int | None] = asyncio.Queue()

    async def handle(self, event: int) -> None:
        if MODE == "slow":
            await asyncio.sleep(FAR_SECONDS)
        if event == 2:
            raise asyncio.CancelledError  # of something of the handler's own; no Exception

    async def dispatch(self) -> None:
        while (event := await self.events.get()) is not None:
            try:
                await self.handle(event)
            except Exception as error:  # noqa: BLE001
                print(error)
            finally:
                self.events.task_done()

    async def drop_later(self) -> None:
        await asyncio.sleep(FAR_SECONDS)
        while not self.events.empty():
            self.events.get_nowait()
            self.events.task_done()

    async def run(self) -> None:
        tasks = [asyncio.create_task(self.dispatch())]
        tasks += [asyncio.create_task(self.drop_later())] if MODE == "dropped" else []
        for event in (1, 2, 3):
            await self.events.put(event)
        async with asyncio.timeout(FAR_SECONDS if MODE == "limit" else None):
            await self.events.join()  # core: agent
        await self.events.put(None)
        await asyncio.gather(*tasks)


join("agent")
begin(asyncio.run, Stream().run())
stay()
