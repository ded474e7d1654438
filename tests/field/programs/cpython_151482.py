"""python/cpython 151482: a signal's handler shuts an executor down, whose lock the interrupted submit() has."""

import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

from field_program import MODE, begin, join, ready


class Executor(ThreadPoolExecutor):
    """A pool to which the signal comes while it begins a thread."""

    def _adjust_thread_count(self) -> None:
        signal.raise_signal(signal.SIGTERM)
        super()._adjust_thread_count()


def stop(*_: object) -> None:
    if MODE == "later":
        stopping.set()
    elif MODE == "thread":
        begin(executor.shutdown)
    else:
        executor.shutdown()  # core: batch


stopping = threading.Event()
join("batch")
executor = Executor()
signal.signal(signal.SIGTERM, stop)
ready()
executor.submit(print, end="")
sys.stdin.read()
