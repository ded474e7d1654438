"""A process forks after its executor has started threads; the child's copy of the executor believes that it has them."""

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from field_program import FAR_SECONDS, MODE, begin, end_with_parent, join, stay

import stilltrue.instrumentation  # noqa: F401 - as in a program that calls instrument() before it forks

executor = ThreadPoolExecutor(max_workers=2)


def render(page: int) -> int:
    if MODE == "own":
        time.sleep(FAR_SECONDS)
    return page


def submit_later() -> None:
    threading.Event().wait(FAR_SECONDS)
    for page in range(2):
        executor.submit(render, page)


def report() -> None:
    pages = ThreadPoolExecutor(max_workers=1) if MODE == "own" else executor
    pages.submit(render, 1).result(FAR_SECONDS if MODE == "limit" else None)  # core: worker


def work(parent: int) -> None:
    end_with_parent()
    join("worker")
    begin(report)
    if MODE == "submits":
        begin(submit_later)
    while os.getppid() == parent:
        time.sleep(0.1)
    os._exit(0)


executor.submit(render, 0) if MODE == "own" else executor.submit(render, 0).result()
parent = os.getpid()
if os.fork() == 0:
    work(parent)
stay()
