"""A process puts all its tasks into a short queue before it reads a result; its worker puts the results into another one."""

import multiprocessing
import subprocess
import sys
import threading
import time
from multiprocessing.queues import Queue
from typing import Any

from field_program import FAR_SECONDS, MODE, begin, end_with_parent, join, publish, published, ready
from terminating import begin_to_terminate

TASKS, SIZE = 10, 2
_READS_LATER = """
import ctypes, os, time
ctypes.CDLL(None).prctl(1, 9)
time.sleep({})
os.read({}, 1)
"""


def work(tasks: "Queue[int]", results: "Queue[int]") -> None:
    end_with_parent()
    join("worker")
    publish("worker", "")
    while True:
        task = tasks.get()
        if MODE == "large":
            time.sleep(FAR_SECONDS)
        results.put(task)  # core: worker


def supervise() -> None:
    spawn: Any = multiprocessing.get_context("spawn")
    tasks, results = spawn.Queue(SIZE), spawn.Queue(TASKS if MODE == "large" else SIZE)
    worker = spawn.Process(target=work, args=(tasks, results), daemon=True)
    worker.start()
    if MODE == "other_thread":
        begin(read_later, results)
    begin_to_terminate(worker)
    if MODE == "third":
        end: int = tasks._reader.fileno()
        subprocess.Popen([sys.executable, "-ISc", _READS_LATER.format(FAR_SECONDS, end)], pass_fds=(end,))
    published("worker")
    ready()
    for task in range(TASKS):
        tasks.put(task, True, FAR_SECONDS if MODE == "patience" else None)  # core: supervisor
    for _ in range(TASKS):
        results.get()


def read_later(results: "Queue[int]") -> None:
    threading.Event().wait(FAR_SECONDS)
    results.get()


if __name__ == "__main__":
    join("supervisor")
    supervise()
