"""Two workers take two locks of a manager in opposite orders, and the process that has made the manager joins them."""

import multiprocessing
import threading
from collections.abc import Callable
from multiprocessing.managers import SyncManager

from field_program import FAR_SECONDS, MODE, begin, end_with_parent, join, publish, published, ready


def transfer(name: str, other: str, first: threading.Lock, second: threading.Lock) -> None:
    end_with_parent()
    join(name)
    with first:
        publish(name, "")
        published(other)
        if MODE == "limit":
            second.acquire(timeout=FAR_SECONDS)
            return
        if MODE == "slow" and name == "savings":
            threading.Event().wait(FAR_SECONDS)
        with second:  # core: checking  # core: savings
            return


def later(end: Callable[[], object]) -> None:
    threading.Event().wait(FAR_SECONDS)
    end()


def supervise(manager: SyncManager) -> None:
    one, other = manager.Lock(), manager.Lock()
    spawn = multiprocessing.get_context("spawn")
    workers = [
        spawn.Process(target=transfer, args=("checking", "savings", one, other)),
        spawn.Process(target=transfer, args=("savings", "checking", other, one)),
    ]
    for worker in workers:
        worker.start()
    published("checking")
    published("savings")
    if MODE == "shut_down":
        begin(later, manager.shutdown)
    ready()
    for worker in workers:
        worker.join(FAR_SECONDS if MODE == "patience" else None)  # core: supervisor


if __name__ == "__main__":
    join("supervisor")
    with multiprocessing.get_context("spawn").Manager() as locks:
        supervise(locks)
