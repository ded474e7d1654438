"""A process holds a lock of multiprocessing while it waits for its pool; the worker acquires the lock first."""

import multiprocessing
import threading
from multiprocessing.synchronize import Lock
from typing import Any

from field_program import FAR_SECONDS, MODE, begin, end_with_parent, join, publish, published, stay
from terminating import terminate_all_later

_locks: list[Lock] = []


def start(lock: Lock) -> None:
    end_with_parent()
    join("worker")
    _locks.append(lock)


def work(number: int) -> int:
    publish("works", "")
    if MODE == "slow":
        threading.Event().wait(FAR_SECONDS)
    if MODE == "limit":
        return int(_locks[0].acquire(timeout=FAR_SECONDS))
    with _locks[0]:  # core: worker
        return number


def supervise() -> None:
    spawn = multiprocessing.get_context("spawn")
    lock = spawn.Lock()
    pool = spawn.Pool(1, initializer=start, initargs=(lock,))
    with lock:
        result = pool.apply_async(work, (1,))
        if MODE == "other_thread":
            begin(leave_later, lock)
        if MODE == "completed":
            begin(complete_later, result)
        if MODE == "all_terminated":
            begin(terminate_all_later)
        result.get(FAR_SECONDS if MODE == "patience" else None)  # core: supervisor


def leave_later(lock: Lock) -> None:
    threading.Event().wait(FAR_SECONDS)
    lock.__exit__(None, None, None)


def complete_later(result: Any) -> None:
    threading.Event().wait(FAR_SECONDS)
    result._set(0, (True, 1))


if __name__ == "__main__":
    join("supervisor")
    begin(supervise)
    published("works")
    stay()
