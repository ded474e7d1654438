"""n8n-io/n8n 19084: tasks are joined before their queue is read; one waits for room in its pipe, the others for their turn."""

import multiprocessing
import os
import threading
import time
from typing import Any

from field_program import FAR_SECONDS, MODE, begin, end_with_parent, join, stay

if MODE == "alarm":
    from elsewhere import alarming

FORK = multiprocessing.get_context("fork")
FORKED = threading.Event()
"""Before that, no thread reads standard input: a worker would wait for its lock, too."""


def work(results: Any) -> None:
    end_with_parent()
    if MODE == "alarm":
        alarming.end_later()
    if MODE == "slow":
        time.sleep(FAR_SECONDS)
    results.put("x" * 1_000_000)


def consume(results: Any) -> None:
    end_with_parent()
    time.sleep(FAR_SECONDS)
    results.get()


def read_later(results: Any) -> None:
    threading.Event().wait(FAR_SECONDS)
    results.get()


def read_later_by_descriptor(descriptor: int) -> None:
    while not threading.Event().wait(FAR_SECONDS):
        os.read(descriptor, 1)


def kill_later(worker: Any) -> None:
    threading.Event().wait(FAR_SECONDS)
    worker.kill()


def run_workers() -> None:
    results = FORK.Queue()
    workers = [FORK.Process(target=work, args=(results,)) for _ in range(3)]
    if MODE == "consumer":
        workers[2] = FORK.Process(target=consume, args=(results,))
    for one in workers:
        one.start()
    FORKED.set()
    if MODE == "read":
        begin(read_later, results)
    if MODE == "descriptor":
        begin(read_later_by_descriptor, results._reader.fileno())
    if MODE == "killed":
        begin(kill_later, workers[0])
    for one in workers:
        one.join(FAR_SECONDS if MODE == "patience" else None)  # core: joining
    print([len(results.get()) for _ in workers])


join("joining")
begin(run_workers)
FORKED.wait()
stay()
