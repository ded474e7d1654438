"""A process waits until its worker has reported all tasks as done; the worker never does, and waits for the next task."""

import multiprocessing
import threading
from multiprocessing.queues import JoinableQueue
from typing import Any

from field_program import FAR_SECONDS, MODE, begin, end_with_parent, join, publish, published, ready


def work(tasks: "JoinableQueue[int]") -> None:
    end_with_parent()
    join("worker")
    if MODE == "late":
        begin(report_later, tasks)
    while True:
        task = tasks.get()  # core: worker
        publish("worker", "")
        if MODE == "slow":
            threading.Event().wait(FAR_SECONDS * task)


def report_later(tasks: "JoinableQueue[int]") -> None:
    threading.Event().wait(FAR_SECONDS)
    tasks.task_done()


def supervise() -> None:
    spawn: Any = multiprocessing.get_context("spawn")
    tasks = spawn.JoinableQueue()
    worker = spawn.Process(target=work, args=(tasks,), daemon=True)
    worker.start()
    tasks.put(1)
    published("worker")
    ready()
    tasks.join()  # core: supervisor
    worker.join()


if __name__ == "__main__":
    join("supervisor")
    supervise()
