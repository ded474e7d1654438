"""Two workers take two locks of multiprocessing in opposite orders, by `acquire()` and `release()` without a `try`."""

import multiprocessing
import threading
from multiprocessing.synchronize import Lock

from field_program import FAR_SECONDS, MODE, end_with_parent, join, publish, published, ready


def transfer(name: str, other: str, first: Lock, second: Lock) -> None:
    end_with_parent()
    join(name)
    first.acquire()
    publish(name, "")
    published(other)
    if MODE == "slow" and name == "savings":
        threading.Event().wait(FAR_SECONDS)
    if MODE == "limit":
        if second.acquire(timeout=FAR_SECONDS):
            second.release()
    else:
        second.acquire()  # core: checking  # core: savings
        second.release()
    first.release()


def supervise() -> None:
    spawn = multiprocessing.get_context("spawn")
    one, other = spawn.Lock(), spawn.Lock()
    workers = [
        spawn.Process(target=transfer, args=("checking", "savings", one, other)),
        spawn.Process(target=transfer, args=("savings", "checking", other, one)),
    ]
    for worker in workers:
        worker.start()
    published("checking")
    published("savings")
    ready()
    for worker in workers:
        worker.join()  # behind: supervisor


if __name__ == "__main__":
    join("supervisor")
    supervise()
