"""python/cpython 92001: `wait` is given a future that has been cancelled, of which its executor will not tell it any more."""

import threading
from concurrent.futures import Future, ThreadPoolExecutor, wait

from field_program import FAR_SECONDS, MODE, begin, join, stay


def collect(parts: "list[Future[bool]]") -> None:
    wait(parts, FAR_SECONDS if MODE == "limit" else None)  # core: reports


def tell(part: "Future[bool]") -> None:
    threading.Event().wait(FAR_SECONDS)
    part.set_running_or_notify_cancel()


def report() -> None:
    begun, over = threading.Event(), threading.Event()
    executor = ThreadPoolExecutor(max_workers=1)
    executor.submit(begun.set)
    executor.submit(over.wait, FAR_SECONDS if MODE == "slow" else 1)
    parts = [executor.submit(over.is_set), executor.submit(over.is_set)]
    begun.wait()
    if MODE == "slow":
        parts[1].cancel()  # the executor's thread will come to it
    else:
        executor.shutdown(wait=False, cancel_futures=True)
    if MODE == "told":
        begin(tell, parts[0])
        begin(tell, parts[1])
    begin(collect, parts)


join("reports")
report()
stay()
