"""Two workers take items until they get a sentinel; there is one sentinel, and both workers are joined."""

import contextlib
import queue
import threading

from field_program import FAR_SECONDS, MODE, begin, join, stay


def work(items: "queue.SimpleQueue[int | None]") -> None:
    with contextlib.suppress(queue.Empty):
        while True:
            item = items.get(timeout=FAR_SECONDS) if MODE == "limit" else items.get()  # core: resizer
            if item is None:
                break


def end_later(items: "queue.SimpleQueue[int | None]") -> None:
    threading.Event().wait(FAR_SECONDS)
    items.put(None)


def main() -> None:
    items: queue.SimpleQueue[int | None] = queue.SimpleQueue()
    workers = [threading.Thread(target=work, args=(items,), daemon=True) for _ in range(2)]
    for worker in workers:
        worker.start()
    for item in range(4):
        items.put(item)
    items.put(None)
    if MODE == "later":
        begin(end_later, items)
    del items
    for worker in workers:
        worker.join()  # behind: resizer


join("resizer")
begin(main)
stay()
