"""A pool is started while a thread holds the lock of a log; the workers are copies in which nobody releases it."""

import multiprocessing
import threading
import time
from typing import Any

from field_program import FAR_SECONDS, MODE, begin, end_with_parent, join, stay

fork: Any = multiprocessing.get_context("fork")
lock, held, forked = threading.Lock(), threading.Event(), threading.Event()


def write_log() -> None:
    with lock:
        held.set()
        time.sleep(0.5)


def work(part: int) -> int:
    if MODE == "slow":
        time.sleep(FAR_SECONDS)
    if lock.acquire(timeout=FAR_SECONDS if MODE == "limit" else -1):
        lock.release()
    return part


def end_later(pool: Any) -> None:
    threading.Event().wait(FAR_SECONDS)
    pool.terminate()


def kill_later(pool: Any) -> None:
    threading.Event().wait(FAR_SECONDS)
    for worker in pool._pool:
        worker.kill()


def report() -> None:
    pool = fork.Pool(2, end_with_parent)
    forked.set()
    if MODE == "ended":
        begin(end_later, pool)
    if MODE == "killed":
        begin(kill_later, pool)
    parts = pool.map_async(work, range(4))
    parts.get(FAR_SECONDS if MODE == "patience" else None)  # core: reports


join("reports")
begin(write_log)
held.wait()
begin(report)
forked.wait()
stay()
