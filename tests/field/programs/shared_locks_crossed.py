"""Two workers take two locks of multiprocessing in opposite orders."""

import multiprocessing
import threading
from multiprocessing.synchronize import Lock

from field_program import FAR_SECONDS, MODE, begin, end_with_parent, join, publish, published, stay


def transfer(name: str, other: str, first: Lock, second: Lock) -> None:
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


def supervise() -> None:
    spawn = multiprocessing.get_context("spawn")
    one, other = spawn.Lock(), spawn.Lock()
    workers = [
        spawn.Process(target=transfer, args=("checking", "savings", one, other), daemon=True),
        spawn.Process(target=transfer, args=("savings", "checking", other, one), daemon=True),
    ]
    for worker in workers:
        worker.start()
    threading.Event().wait(FAR_SECONDS)


if __name__ == "__main__":
    join("supervisor")
    begin(supervise)
    published("checking")
    published("savings")
    stay()
