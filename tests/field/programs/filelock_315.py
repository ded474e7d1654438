"""tox-dev/filelock 315: a process locks a file and, with the lock held, waits for code that locks the same file again."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from field_program import FAR_SECONDS, MEETING, MODE, begin, join, stay
from filelock import FileLock

agent = join("trainer")
MEETING.mkdir(parents=True, exist_ok=True)
CACHE = str(MEETING / "cache.lock")


def load() -> str:
    with FileLock(CACHE, timeout=FAR_SECONDS if MODE == "limit" else -1):  # core: trainer
        return "cached"


def delete_later() -> None:
    threading.Event().wait(FAR_SECONDS)
    Path(CACHE).unlink()


def release_later(lock: FileLock) -> None:
    threading.Event().wait(FAR_SECONDS)
    lock.release(force=True)


def prepare(pool: ThreadPoolExecutor) -> None:
    lock = FileLock(CACHE, thread_local=MODE != "shared")
    with lock:
        if MODE == "shared":
            begin(release_later, lock)
        if MODE == "other_file":
            pool.submit(threading.Event().wait, FAR_SECONDS).result()
        pool.submit(load).result(timeout=FAR_SECONDS if MODE == "patience" else None)  # core: trainer


if MODE == "deleted":
    begin(delete_later)
begin(prepare, ThreadPoolExecutor(1))
stay()
