"""python/cpython 115634: a pool's last worker has run as many items as it may, and is not replaced.

The core is the thread that waits for a queued item.
"""

import multiprocessing
import threading
import time
from concurrent.futures import Future, ProcessPoolExecutor

from field_program import FAR_SECONDS, MODE, begin, end_with_parent, join, publish, published, stay


def start() -> None:
    end_with_parent()


def work(number: int) -> int:
    if MODE == "slow" and number == 2:
        time.sleep(FAR_SECONDS)
    return number


def supervise() -> None:
    pool = ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"), initializer=start, max_tasks_per_child=2)
    results = [pool.submit(work, number) for number in range(4)]
    results[1].result()
    while pool._processes:
        time.sleep(0.1)
    if MODE == "slow":
        pool.submit(work, 4)
    if MODE == "submits":
        begin(submit_later, pool)
    if MODE == "cancels":
        begin(cancel_later, results[2])
    publish("set up", "")
    results[2].result(FAR_SECONDS if MODE == "patience" else None)  # core: builder


def submit_later(pool: ProcessPoolExecutor) -> None:
    threading.Event().wait(FAR_SECONDS)
    pool.submit(work, 5)


def cancel_later(result: "Future[int]") -> None:
    threading.Event().wait(FAR_SECONDS)
    result.set_exception(TimeoutError())


if __name__ == "__main__":
    join("builder")
    begin(supervise)
    published("set up")
    stay()
