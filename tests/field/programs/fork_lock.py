"""A process forks while another of its threads has a lock: in the child nobody has it, and nobody will give it back."""

import importlib
import os
import threading
import time

from field_program import FAR_SECONDS, MODE, begin, join, stay

import stilltrue.instrumentation  # noqa: F401 - as in a program that calls instrument() before it forks

FAR, taken = threading.Event(), threading.Event()
lock = threading.Lock()


def refresh() -> None:
    if MODE == "before":
        with lock:
            pass
        taken.set()
        FAR.wait(FAR_SECONDS)
    with lock:
        if MODE == "kept":
            importlib.import_module("elsewhere.leaving").keep(lock)
        taken.set()
        FAR.wait(FAR_SECONDS)


def read() -> None:
    if MODE == "in_time":
        importlib.import_module("elsewhere.trying").try_in_time(lock)
    with lock:  # core: worker
        pass


def work(parent: int) -> None:
    join("worker")
    if MODE == "kept":
        begin(importlib.import_module("elsewhere.leaving").leave_later)
    begin(read)
    while os.getppid() == parent:
        time.sleep(0.1)
    os._exit(0)


begin(refresh)
taken.wait()
parent = os.getpid()
if os.fork() == 0:
    work(parent)
stay()
