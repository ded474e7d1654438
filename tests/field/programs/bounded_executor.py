"""An executor that limits its queue by a semaphore, which each item's end releases; the items submit further ones."""

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from field_program import FAR_SECONDS, MODE, begin, join, stay

ITEMS = 2
BEGUN = threading.Event()


class BoundedExecutor:
    """At most so many items are queued or run; ``submit`` waits for the end of one."""

    def __init__(self, items: int) -> None:
        self.executor = ThreadPoolExecutor(items)
        self.room = threading.BoundedSemaphore(items + (MODE == "more_room"))

    def submit(self, function: Callable[..., None], *arguments: Any) -> "Future[None]":
        """As an executor's."""
        self.room.acquire(timeout=FAR_SECONDS if MODE == "limit" else None)  # core: crawler x2
        future = self.executor.submit(function, *arguments)
        future.add_done_callback(lambda _: self.room.release())
        return future


both = threading.Barrier(ITEMS)


def crawl(executor: BoundedExecutor, depth: int) -> None:
    both.wait()
    if MODE in ("slow", "more_room"):
        threading.Event().wait(FAR_SECONDS)
    if depth:
        executor.submit(crawl, executor, depth - 1)


def make_room_later(executor: BoundedExecutor) -> None:
    BEGUN.set()
    threading.Event().wait(FAR_SECONDS)
    executor.room.release()


def crawl_all() -> None:
    executor = BoundedExecutor(ITEMS)
    if MODE == "released":
        begin(make_room_later, executor)
        BEGUN.wait()
    futures = [executor.submit(crawl, executor, 1) for _ in range(ITEMS)]
    for one in futures:
        one.result()  # core: crawler


join("crawler")
begin(crawl_all)
stay()
