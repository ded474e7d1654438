"""home-assistant/core 45807: an executor's shutdown waits for a job that waits for a callback on a loop which has stopped."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from field_program import FAR_SECONDS, MODE, begin, join, stay


class Home:
    """An event loop, and the threads that do its blocking work."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.executor = ThreadPoolExecutor(2)
        self.stopped = threading.Event()

    def call(self, callback: Callable[[], int]) -> int:
        """Run a callback on the loop, and wait for its result."""
        future = Future[int]()

        def run() -> None:
            future.set_result(callback())

        self.loop.call_soon_threadsafe(run)
        return future.result(FAR_SECONDS if MODE == "patience" else None)  # core: home

    def read_sensor(self) -> int:
        self.stopped.wait()
        if MODE == "slow":
            threading.Event().wait(FAR_SECONDS)
        return self.call(lambda: 21)

    async def serve(self) -> None:
        self.loop.run_in_executor(self.executor, self.read_sensor)
        await asyncio.sleep(0.1)

    def run_later(self) -> None:
        threading.Event().wait(FAR_SECONDS)
        self.loop.run_forever()


def main() -> None:
    home = Home()
    home.loop.run_until_complete(home.serve())
    if MODE == "run_later":
        begin(home.run_later)
    if MODE == "timer":
        timer = threading.Timer(FAR_SECONDS, home.loop.run_forever)
        timer.daemon = True
        timer.start()
    home.stopped.set()
    home.executor.shutdown()  # behind: home


join("home")
begin(main)
stay()
