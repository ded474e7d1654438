"""A program closes its pool of threads and joins it; two items that the pool runs wait for each other's event."""

import threading
import time
from multiprocessing.pool import ThreadPool

from field_program import FAR_SECONDS, MODE, begin, join, stay


def load(loaded: threading.Event, parsed: threading.Event) -> None:
    parsed.wait(FAR_SECONDS if MODE == "limit" else None)  # core: reports
    loaded.set()


def parse(loaded: threading.Event, parsed: threading.Event) -> None:
    if MODE == "slow":
        time.sleep(FAR_SECONDS)
    else:
        loaded.wait()  # core: reports
    parsed.set()


def later(loaded: threading.Event) -> None:
    time.sleep(FAR_SECONDS)
    loaded.set()


def main() -> None:
    loaded, parsed = threading.Event(), threading.Event()
    pool = ThreadPool(4)
    pool.apply_async(load, (loaded, parsed))
    pool.apply_async(parse, (loaded, parsed))
    if MODE == "later":
        begin(later, loaded)
    pool.close()
    pool.join()  # behind: reports


join("reports")
begin(main)
stay()
