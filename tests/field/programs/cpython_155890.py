"""python/cpython 155890: a module waits, during its import, for an item whose function it defines.

In the core is also the thread of the pool that sends the item: to pickle the function, it imports the module.
"""

import importlib
import multiprocessing
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from field_program import FAR_SECONDS, MODE, begin, end_with_parent, join, publish, published, stay
from terminating import terminate_all_later


def square(number: float) -> float:
    return number * number


def kill_later(pool: ProcessPoolExecutor) -> None:
    threading.Event().wait(FAR_SECONDS)
    for worker in pool._processes.values():
        worker.kill()


if __name__ == "__main__":
    join("tables")
    begin(importlib.import_module, "cpython_155890")
    published("submitted")
    stay()
elif __name__ == "cpython_155890":
    pool = ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"), initializer=end_with_parent)
    run: Any = time.sleep if MODE == "elsewhere" else square
    squared = pool.submit(run, FAR_SECONDS if MODE == "elsewhere" else 3)
    if MODE == "killed":
        begin(kill_later, pool)
    if MODE == "all_killed":
        begin(terminate_all_later)
    publish("submitted", "")
    squared.result(FAR_SECONDS if MODE == "time_out" else None)  # core: tables
