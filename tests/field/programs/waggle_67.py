"""Abhigyan-Shekhar/Waggle-mcp 67: a thread that reads wants to write, and waits until all who read have ended."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from field_program import FAR_SECONDS, MODE, begin, join, stay

FAR, reading = threading.Event(), threading.Event()


class ReadWriteLock:
    """Many readers, or one writer."""

    def __init__(self) -> None:
        self._condition = threading.Condition(threading.Lock())
        self._readers = 0
        self._writes = False

    @contextmanager
    def read(self) -> Iterator[None]:
        with self._condition:
            while self._writes:
                self._condition.wait()
            self._readers += 1
        try:
            yield
        finally:
            with self._condition:
                self._readers -= 1
                self._condition.notify_all()

    @contextmanager
    def write(self) -> Iterator[None]:
        with self._condition:
            while self._writes or self._readers > 0:
                self._condition.wait(FAR_SECONDS if MODE == "time_out" else None)  # core: graph
            self._writes = True
        try:
            yield
        finally:
            with self._condition:
                self._writes = False
                self._condition.notify_all()


def update() -> None:
    if MODE == "before":
        with lock.read():
            pass
    elif MODE != "slow":
        with lock.read(), lock.write():
            return
    with lock.write():
        pass


def read_slowly() -> None:
    with lock.read():
        reading.set()
        FAR.wait(FAR_SECONDS)


def watch() -> None:
    FAR.wait(FAR_SECONDS)
    with lock._condition:
        lock._readers = 0
        lock._condition.notify_all()


join("graph")
lock = ReadWriteLock()
if MODE == "slow":
    begin(read_slowly)
    reading.wait()
if MODE == "watched":
    begin(watch)
begin(update)
stay()
