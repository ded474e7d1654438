"""python/cpython 141617: the documentation's example of two items that wait for each other's future."""

import threading
from concurrent.futures import Future, ThreadPoolExecutor

from field_program import FAR_SECONDS, MODE, begin, join, stay

FAR, both = threading.Event(), threading.Event()


def wait_on_b() -> int:
    both.wait()
    return b.result()  # core: calculator


def wait_on_a() -> int:
    both.wait()
    return a.result(FAR_SECONDS if MODE == "time_out" else None)  # core: calculator


def works() -> int:
    FAR.wait(FAR_SECONDS)
    return 5


def complete() -> None:
    FAR.wait(FAR_SECONDS)
    b.set_result(5)


join("calculator")
executor = ThreadPoolExecutor(max_workers=2)
a: Future[int] = executor.submit(wait_on_b)
b: Future[int] = executor.submit(works if MODE == "works" else wait_on_a)
if MODE == "completed":
    begin(complete)
both.set()
stay()
