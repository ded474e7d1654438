"""dask/distributed 4224: an actor calls an actor that lives on the same worker, which has one thread for all of its actors."""

import asyncio
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from field_program import FAR_SECONDS, MODE, begin, join, stay

join("worker")
actors_thread = ThreadPoolExecutor(2 if MODE == "two_threads" else 1, "Dask-Actor")
elsewhere = ThreadPoolExecutor(1, "Other-Worker")
loop = asyncio.new_event_loop()


class Actor:
    """What a worker runs on the thread that it has for actors."""

    def __init__(self, threads: ThreadPoolExecutor) -> None:
        self._threads = threads

    async def _run(self, method: str, arguments: tuple[Any, ...]) -> Any:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, getattr(self, method), *arguments)  # core: worker # behind: worker

    def call(self, method: str, *arguments: Any) -> "Future[Any]":
        """Call a method of the actor from any thread, through the worker's loop."""
        return asyncio.run_coroutine_threadsafe(self._run(method, arguments), loop)


class Counter(Actor):
    count = 0

    def increment(self) -> int:
        self.count += 1
        return self.count


class UsesCounter(Actor):
    def do_inc(self, counter: Counter) -> int:
        called = counter.call("increment")
        if MODE == "time_out":
            return int(called.result(FAR_SECONDS))
        return int(called.result())  # core: worker


begin(loop.run_forever)
counter = Counter(elsewhere if MODE == "another_worker" else actors_thread)
UsesCounter(actors_thread).call("do_inc", counter)
stay()
