"""A process joins its worker before it sets the event for which the worker waits."""

import multiprocessing
import signal
import threading
from multiprocessing.synchronize import Event
from typing import Any

from field_program import FAR_SECONDS, MODE, begin, end_with_parent, join, publish, published, ready


def work(go: Event, name: str) -> None:
    end_with_parent()
    if name != "stranger":
        join(name)
    publish(name, "")
    if MODE == "slow" or name == "stranger":
        threading.Event().wait(FAR_SECONDS)
    go.wait(FAR_SECONDS if MODE == "limit" else None)  # core: worker


def supervise() -> None:
    spawn: Any = multiprocessing.get_context("spawn")
    go = spawn.Event()
    names = ["worker", "stranger"] if MODE == "stranger" else ["worker"]
    workers = [spawn.Process(target=work, args=(go, name), daemon=True) for name in names]
    for worker in workers:
        worker.start()
    if MODE == "other_thread":
        begin(set_later, go)
    if MODE == "signalled":
        signal.signal(signal.SIGUSR1, lambda *_: go.set())
    for name in names:
        published(name)
    ready()
    if MODE == "idle":
        end_by_signal(workers[0], go)
        return
    workers[0].join(FAR_SECONDS if MODE == "patience" else None)  # core: supervisor
    go.set()


def end_by_signal(worker: Any, go: Event) -> None:
    try:
        worker.join()
    except KeyboardInterrupt:
        go.set()


def set_later(go: Event) -> None:
    threading.Event().wait(FAR_SECONDS)
    go.set()


if __name__ == "__main__":
    join("supervisor")
    supervise()
