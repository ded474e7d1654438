"""A process joins its workers, which wait for it at a barrier of multiprocessing that it would reach only afterwards."""

import multiprocessing
import threading
from multiprocessing.synchronize import Barrier
from typing import Any

from field_program import FAR_SECONDS, MODE, begin, end_with_parent, join, publish, published, ready


def work(met: Barrier, name: str) -> None:
    end_with_parent()
    join(name)
    publish(name, "")
    if MODE == "slow" and name == "second":
        threading.Event().wait(FAR_SECONDS)
    met.wait(FAR_SECONDS if MODE == "limit" else None)  # core: first # core: second


def supervise() -> None:
    spawn: Any = multiprocessing.get_context("spawn")
    met = spawn.Barrier(3)
    workers = [spawn.Process(target=work, args=(met, name), daemon=True) for name in ("first", "second")]
    for worker in workers:
        worker.start()
    if MODE == "other_thread":
        begin(meet_later, met)
    for name in ("first", "second"):
        published(name)
    ready()
    for worker in workers:
        worker.join()  # core: supervisor
    met.wait()


def meet_later(met: Barrier) -> None:
    threading.Event().wait(FAR_SECONDS)
    met.wait()


if __name__ == "__main__":
    join("supervisor")
    supervise()
