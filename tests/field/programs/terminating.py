"""What ends a worker of ``multiprocessing`` later, for the near misses."""

import multiprocessing
import threading

from field_program import FAR_SECONDS, MODE, begin


def begin_to_terminate(worker: multiprocessing.Process) -> None:
    """In these modes, another thread ends the worker later: by its name, or with all others."""
    if MODE == "terminated":
        begin(terminate_later, worker)
    if MODE == "all_terminated":
        begin(terminate_all_later)


def terminate_later(worker: multiprocessing.Process) -> None:
    threading.Event().wait(FAR_SECONDS)
    worker.terminate()


def terminate_all_later() -> None:
    threading.Event().wait(FAR_SECONDS)
    for worker in multiprocessing.active_children():
        worker.terminate()
