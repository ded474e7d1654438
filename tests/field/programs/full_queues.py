"""Widely known: a producer puts all of its items before it takes results; both queues fill up, and all wait for space."""

import queue
import threading

from field_program import FAR_SECONDS, MODE, begin, join, stay

ITEMS = 50


def work(todo: queue.Queue[int], done: queue.Queue[int]) -> None:
    """Takes items, and puts what comes of them."""
    while True:
        item = todo.get()
        done.put(item, timeout=FAR_SECONDS if MODE == "time_out" else None)  # core: resizer x2


def produce(todo: queue.Queue[int], done: queue.Queue[int]) -> None:
    """Puts everything, then takes everything."""
    for item in range(ITEMS):
        todo.put(item)  # core: resizer
    for _ in range(ITEMS):
        done.get()


def drain(done: queue.Queue[int]) -> None:
    """Takes results from the beginning, though slowly."""
    while True:
        threading.Event().wait(FAR_SECONDS)
        done.get()


join("resizer")
items: queue.Queue[int] = queue.Queue(5)
results: queue.Queue[int] = queue.Queue(0 if MODE == "room" else 5)
if MODE == "drained":
    begin(drain, results)
for _ in range(2):
    begin(work, items, results)
begin(produce, items, results)
stay()
