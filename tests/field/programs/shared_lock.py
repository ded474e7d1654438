"""A process locks a lock of multiprocessing and joins its worker, which wants the lock before it ends."""

import multiprocessing
import threading
from multiprocessing.synchronize import Lock

from field_program import FAR_SECONDS, MODE, begin, end_with_parent, join, publish, published, stay
from terminating import begin_to_terminate


def work(lock: Lock) -> None:
    end_with_parent()
    join("worker")
    publish("worker", "")
    if MODE == "limit":
        lock.acquire(timeout=FAR_SECONDS)
        return
    if MODE == "slow":
        threading.Event().wait(FAR_SECONDS)
    with lock:  # core: worker
        return


def supervise() -> None:
    spawn = multiprocessing.get_context("spawn")
    lock = spawn.Lock()
    with lock:
        worker = spawn.Process(target=work, args=(lock,), daemon=True)
        worker.start()
        if MODE == "other_thread":
            begin(leave_later, lock)
        begin_to_terminate(worker)
        worker.join(FAR_SECONDS if MODE == "patience" else None)  # core: supervisor


def leave_later(lock: Lock) -> None:
    threading.Event().wait(FAR_SECONDS)
    lock.__exit__(None, None, None)


if __name__ == "__main__":
    join("supervisor")
    begin(supervise)
    published("worker")
    stay()
