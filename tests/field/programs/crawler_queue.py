"""Workers put the links that they find into the bounded queue that only they read: all wait for room."""

import queue
import threading

from field_program import FAR_SECONDS, MODE, begin, join, stay

WORKERS = 2
pages: "queue.Queue[int]" = queue.Queue(0 if MODE == "unbounded" else 4)


def crawl() -> None:
    while True:
        pages.get()
        for link in range(8):
            if MODE == "limit":
                pages.put(link, timeout=FAR_SECONDS)
            else:
                pages.put(link)  # core: crawler x2
        if MODE == "unbounded":
            threading.Event().wait(FAR_SECONDS)


def drain_later() -> None:
    threading.Event().wait(FAR_SECONDS)
    pages.get()


def main() -> None:
    workers = [threading.Thread(target=crawl, daemon=True) for _ in range(WORKERS)]
    for page in range(4):
        pages.put(page)
    for worker in workers:
        worker.start()
    if MODE == "drained":
        begin(drain_later)
    for worker in workers:
        worker.join()  # behind: crawler


join("crawler")
begin(main)
stay()
