"""PrefectHQ/prefect 7897: setting an event waits for the loop of a waiter, which waits for the setter."""

import asyncio
import threading

from field_program import FAR_SECONDS, MODE, begin, join, stay

setting = threading.Event()


class Event:
    """An event that is set from any thread: on the waiter's loop, and only then is it done."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop, self.event = loop, asyncio.Event()

    async def _set(self) -> None:
        self.event.set()

    def set(self) -> None:
        done = asyncio.run_coroutine_threadsafe(self._set(), self.loop)
        setting.set()
        if MODE == "slow":
            threading.Event().wait(FAR_SECONDS)
        if MODE != "one_way":
            done.result(FAR_SECONDS if MODE == "patience" else None)  # core: flow
        else:
            threading.Event().wait(FAR_SECONDS)


async def run() -> None:
    event = Event(asyncio.get_running_loop())
    worker = begin(event.set)
    worker.join(FAR_SECONDS if MODE == "limit" else None)  # core: flow


if __name__ == "__main__":
    join("flow")
    begin(asyncio.run, run())
    setting.wait()
    stay()
