"""python/cpython 83371: a callback of a pool raises, which ends the pool's thread for results; no result comes any more."""

import time
from multiprocessing.pool import ThreadPool

from field_program import FAR_SECONDS, MODE, begin, join, stay
from served import serve

if MODE == "completed":
    from elsewhere import completing


def report(size: int) -> None:
    if MODE == "slow":
        time.sleep(FAR_SECONDS)
    raise ValueError(f"{size} is not allowed")


def measure(request: bytes, context: object) -> bytes:
    result = pool.apply_async(len, (request,), callback=report)
    if MODE == "completed":
        completing.complete_later(result, 1)
    return str(result.get(FAR_SECONDS if MODE == "patience" else None)).encode()  # core: sizes


join("sizes")
pool = ThreadPool(2)
call = serve(measure)
begin(lambda: call(b"abc"))  # behind: sizes
stay()
