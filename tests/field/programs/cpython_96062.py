"""A pool's idle worker is killed: it waits for a task, and has the lock of the queue of tasks meanwhile.

In the core is the worker that the pool starts instead, in the code of ``multiprocessing``.
"""

import importlib
import multiprocessing
import os
import signal
import threading
import time
from pathlib import Path

from field_program import FAR_SECONDS, MEETING, MODE, begin, end_with_parent, join, publish, published, service, stay

import stilltrue


def start() -> None:
    end_with_parent()
    name = service("worker")
    instance = name if (MEETING / "killed").exists() else f"{name}-{os.getpid()}"
    stilltrue.instrument(name, instance=instance).start()
    if MODE == "unlocked":
        importlib.import_module("elsewhere.unlocking")
    publish(str(os.getpid()), "")


def square(number: int) -> int:
    return number * number


def supervise() -> None:
    pool = multiprocessing.get_context("spawn").Pool(2 if MODE == "idle" else 1, initializer=start)
    pool.apply(square, (2,))
    if MODE != "idle":
        first = pool._pool[0].pid
        while not is_reading(first):
            time.sleep(0.1)
        publish("killed", "")
        os.kill(first, signal.SIGKILL)
        while not pool._pool or pool._pool[0].pid == first:
            time.sleep(0.1)
        published(str(pool._pool[0].pid))
    publish("set up", "")
    threading.Event().wait(FAR_SECONDS)


def is_reading(process: int) -> bool:
    """Whether a process's main thread is in the system call that reads."""
    return Path(f"/proc/{process}/syscall").read_text().startswith(("0 ", "63 "))


if __name__ == "__main__":
    join("supervisor")
    begin(supervise)
    published("set up")
    stay()
