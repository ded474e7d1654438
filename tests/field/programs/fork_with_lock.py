"""A worker is forked while another thread holds a lock, which nobody releases in the worker; the parent waits for it."""

import multiprocessing
import threading
import time

from field_program import FAR_SECONDS, MODE, begin, end_with_parent, join, stay

if MODE == "alarm":
    from elsewhere import alarming

LOCK = threading.Lock()
HELD = threading.Event()
FORKED = threading.Event()
"""Before that, no thread reads standard input: a worker would wait for its lock, too."""


def refresh() -> None:
    with LOCK:
        HELD.set()
        time.sleep(0.5)


def work() -> None:
    end_with_parent()
    if MODE == "alarm":
        alarming.release_later(LOCK)
    if MODE == "slow":
        time.sleep(FAR_SECONDS)
    if MODE == "timeout":
        LOCK.acquire(timeout=FAR_SECONDS)
    if MODE == "thread":
        threading.Timer(FAR_SECONDS, LOCK.release).start()
    with LOCK:
        pass


def kill_later(worker: multiprocessing.Process) -> None:
    threading.Event().wait(FAR_SECONDS)
    worker.kill()


def run_worker() -> None:
    worker = multiprocessing.get_context("fork").Process(target=work)
    worker.start()
    FORKED.set()
    if MODE == "killed":
        begin(kill_later, worker)
    worker.join(FAR_SECONDS if MODE == "patience" else None)  # core: forking


join("forking")
begin(refresh)
HELD.wait()
begin(run_worker)
FORKED.wait()
stay()
