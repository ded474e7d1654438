"""A worker is killed while it has a lock of multiprocessing: nobody will give the lock back."""

import importlib
import multiprocessing
import os
import signal
import threading
from multiprocessing.synchronize import Lock

from field_program import FAR_SECONDS, MODE, begin, end_with_parent, join, publish, published, stay


def write(lock: Lock) -> None:
    end_with_parent()
    join("writer")
    with lock:
        publish("writing", "")
        if MODE == "slow":
            threading.Event().wait(FAR_SECONDS)
        os.kill(os.getpid(), signal.SIGKILL)


def read(lock: Lock) -> None:
    end_with_parent()
    join("reader")
    published("writing")
    publish("reader", "")
    if MODE == "unlocked":
        importlib.import_module("elsewhere.unlocking")
    if MODE == "limit":
        lock.acquire(timeout=FAR_SECONDS)
        return
    with lock:  # core: reader
        return


def stand_by(lock: Lock) -> None:
    end_with_parent()
    publish("stranger", "")
    threading.Event().wait(FAR_SECONDS)
    del lock


def supervise() -> None:
    spawn = multiprocessing.get_context("spawn")
    lock = spawn.Lock()
    if MODE == "stranger":
        spawn.Process(target=stand_by, args=(lock,), daemon=True).start()
        published("stranger")
    for work in (write, read):
        spawn.Process(target=work, args=(lock,), daemon=True).start()
    threading.Event().wait(FAR_SECONDS)


if __name__ == "__main__":
    join("supervisor")
    begin(supervise)
    published("reader")
    stay()
