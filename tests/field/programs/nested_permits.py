"""Each request takes a permit, and so does each step within it; there are as many requests as permits."""

import threading

from field_program import FAR_SECONDS, MODE, begin, join, stay
from served import serve

PERMITS = 2
permits = threading.BoundedSemaphore(PERMITS + (MODE == "one_more"))
both = threading.Barrier(PERMITS)


def step() -> bytes:
    if MODE == "limit":
        permits.acquire(timeout=FAR_SECONDS)
        return b""
    with permits:  # core: renderer x2
        if MODE == "one_more":
            threading.Event().wait(FAR_SECONDS)
        return b""


def render(request: bytes, context: object) -> bytes:
    with permits:
        both.wait()
        if MODE == "slow":
            threading.Event().wait(FAR_SECONDS)
        return step()


def release_later() -> None:
    threading.Event().wait(FAR_SECONDS)
    permits.release()


join("renderer")
call = serve(render)
for _ in range(PERMITS):
    begin(lambda: call(b""))  # behind: renderer x2
if MODE == "released":
    begin(release_later)
stay()
