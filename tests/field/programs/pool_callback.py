"""A callback of a pool asks the same pool and waits: the pool's thread for results, which runs it, would pass the answer on."""

import time
from multiprocessing.pool import ThreadPool

from field_program import FAR_SECONDS, MODE, begin, join, stay
from served import serve

if MODE == "completed":
    from elsewhere import completing


def store(size: int) -> None:
    if MODE == "slow":
        time.sleep(FAR_SECONDS)
    stored = others.apply_async(time.sleep if MODE == "another" else str, (FAR_SECONDS,))
    if MODE == "completed":
        completing.complete_later(stored, 1)
    stored.get(FAR_SECONDS if MODE == "patience" else None)  # core: sizes


def measure(request: bytes, context: object) -> bytes:
    result = pool.apply_async(len, (request,), callback=store)
    return str(result.get()).encode()  # behind: sizes


join("sizes")
pool = ThreadPool(2)
others = ThreadPool(2) if MODE == "another" else pool
call = serve(measure)
begin(lambda: call(b"abc"))  # behind: sizes
stay()
