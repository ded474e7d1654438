"""A handler iterates over the results of a pool of processes, an item of which calls the same server: no thread is free."""

import multiprocessing
import threading
import time
from collections.abc import Iterator

from field_program import FAR_SECONDS, MODE, begin, end_with_parent, join, publish, published, stay
from served import call_at, serve

PAGES = 2


def start() -> None:
    end_with_parent()
    join("renderer")


def render(page: int) -> bytes:
    call = call_at(int(published("site")))
    publish("renders", "")
    return call(b"style", timeout=FAR_SECONDS if MODE == "deadline" else None)  # core: renderer


def pages() -> Iterator[int]:
    yield from range(PAGES)
    if MODE == "lazy":
        time.sleep(FAR_SECONDS)


def kill_later() -> None:
    threading.Event().wait(FAR_SECONDS)
    for worker in pool._pool:
        worker.kill()


def site(request: bytes, context: object) -> bytes:
    if request:
        time.sleep(FAR_SECONDS)
        return request
    if MODE == "killed":
        begin(kill_later)
    rendered = pool.imap(render, pages())
    if MODE == "patience":
        return rendered.next(FAR_SECONDS)
    return b"".join(rendered)  # core: site


if __name__ == "__main__":
    join("site")
    pool = multiprocessing.get_context("spawn").Pool(1, start)
    call = serve(site, workers=2 if MODE == "worker" else 1, port_for=lambda port: publish("site", str(port)))
    begin(lambda: call(b""))  # behind: site
    published("renders")
    stay()
