"""A function that a pool of one thread runs iterates over results of the same pool, which are all queued behind it."""

import threading
from multiprocessing.pool import ThreadPool

from field_program import FAR_SECONDS, MODE, begin, join, stay
from served import serve

if MODE == "completed":
    from elsewhere import completing


def part(number: int) -> int:
    if MODE in ("one_more", "another"):
        threading.Event().wait(FAR_SECONDS)
    return number


def page(number: int) -> int:
    found = parts.imap_unordered(part, range(number))
    if MODE == "completed":
        completing.complete_later(found, 1)
    if MODE == "patience":
        return found.next(FAR_SECONDS)
    return sum(found)  # core: renderer


def render(request: bytes, context: object) -> bytes:
    return bytes(pool.imap(page, [2]))  # behind: renderer


join("renderer")
pool = ThreadPool(2 if MODE == "one_more" else 1)
parts = ThreadPool(1) if MODE == "another" else pool
call = serve(render)
begin(lambda: call(b""))  # behind: renderer
stay()
