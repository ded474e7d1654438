"""getsentry/sentry-python 803: a collection within a queue's lock runs a destructor that reports to the same queue."""

import gc
import queue
from typing import Any

from field_program import MODE, begin, join, stay


class Events(queue.Queue):  # type: ignore[type-arg]
    """What is to be sent; a collection begins while one is put."""

    def _put(self, item: Any) -> None:
        super()._put(item)
        gc.collect()


class Deferred:
    """A result that nobody has looked at reports its failure when it is collected."""

    def __init__(self) -> None:
        self.itself = self

    def __del__(self) -> None:
        reports.put("unhandled error")  # core: api


events: Any = queue.SimpleQueue() if MODE == "simple" else Events()
reports: Any = queue.Queue() if MODE == "another" else events
join("api")
gc.disable()  # a collection of another thread would find it first
Deferred()
begin(events.put, "first")
stay()
