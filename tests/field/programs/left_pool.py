"""The block of a pool is left, which terminates the pool, before its results have been asked for: they never come."""

import multiprocessing
import time

from field_program import FAR_SECONDS, MODE, begin, end_with_parent, join, stay
from served import serve

if MODE == "completed":
    from elsewhere import completing


def render(page: int) -> int:
    time.sleep(FAR_SECONDS)
    return page


def book(request: bytes, context: object) -> bytes:
    with multiprocessing.get_context("spawn").Pool(1, end_with_parent) as pool:
        pages = pool.map_async(render, range(3), 3)
        if MODE == "inside":
            return bytes(pages.get())
    if MODE == "completed":
        completing.complete_later(pages, [1])
    return bytes(pages.get(FAR_SECONDS if MODE == "patience" else None))  # core: books


if __name__ == "__main__":
    join("books")
    call = serve(book)
    begin(lambda: call(b""))  # behind: books
    stay()
