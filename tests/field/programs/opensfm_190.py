"""mapillary/OpenSfM 190: a pool's worker is killed (out of memory), and its result never comes."""

import multiprocessing
import os
import signal
import threading
import time
from typing import Any

from field_program import FAR_SECONDS, MODE, begin, end_with_parent, join, publish, published, stay


def start() -> None:
    end_with_parent()


def match(number: int) -> int:
    if number == 2:
        publish("matching", str(os.getpid()))
        time.sleep(FAR_SECONDS)
    return number


def supervise() -> None:
    pool: Any = multiprocessing.get_context("spawn").Pool(2, initializer=start)
    results = pool.map_async(match, range(4), 1)
    worker = int(published("matching"))
    if MODE != "slow":
        os.kill(worker, signal.SIGKILL)
        while worker in [one.pid for one in pool._pool]:
            time.sleep(0.1)
    if MODE == "completed":
        begin(complete_later, results)
    if MODE == "replaced":
        begin(replace_later, pool)
    publish("set up", "")
    results.get(FAR_SECONDS if MODE == "patience" else None)  # core: reconstruction


def complete_later(results: Any) -> None:
    threading.Event().wait(FAR_SECONDS)
    results._set(2, (True, [2]))


def replace_later(pool: Any) -> None:
    threading.Event().wait(FAR_SECONDS)
    for result in list(pool._cache.values()):
        result._set(2, (True, [2]))


if __name__ == "__main__":
    join("reconstruction")
    begin(supervise)
    published("set up")
    stay()
