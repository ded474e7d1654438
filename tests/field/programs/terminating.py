"""What ends a worker of ``multiprocessing`` later, for the near misses."""

import multiprocessing
import threading

from field_program import FAR_SECONDS


def terminate_later(worker: multiprocessing.Process) -> None:
    threading.Event().wait(FAR_SECONDS)
    worker.terminate()


def terminate_all_later() -> None:
    threading.Event().wait(FAR_SECONDS)
    for worker in multiprocessing.active_children():
        worker.terminate()
