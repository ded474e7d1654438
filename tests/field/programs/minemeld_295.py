"""PaloAltoNetworks/minemeld-core 295: a reader reads again while a writer waits, who has precedence over new readers."""

import threading

from field_program import FAR_SECONDS, MODE, begin, join, stay

FAR, reading = threading.Event(), threading.Event()


class RWLock:
    """Many readers, or one writer; new readers wait for writers that wait."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.readers = 0
        self.waiting = 0
        self.writing = False

    def rlock(self) -> None:
        with self.changed:
            self.changed.wait_for(lambda: not self.writing and self.waiting == 0)  # core: mine
            self.readers += 1

    def runlock(self) -> None:
        with self.changed:
            self.readers -= 1
            self.changed.notify_all()

    def lock(self) -> None:
        with self.changed:
            self.waiting += 1
            try:
                while self.writing or self.readers:
                    self.changed.wait(FAR_SECONDS if MODE == "time_out" else None)  # core: mine
            finally:
                self.waiting -= 1
            self.writing = True

    def unlock(self) -> None:
        with self.changed:
            self.writing = False
            self.changed.notify_all()


def read() -> None:
    rwlock.rlock()
    try:
        reading.set()
        while MODE != "slow" and not rwlock.waiting:
            pass
        if MODE == "slow":
            FAR.wait(FAR_SECONDS)
        if MODE == "at_once":
            return
        read_again()
    finally:
        rwlock.runlock()


def read_again() -> None:
    rwlock.rlock()
    try:
        return
    finally:
        rwlock.runlock()


def write() -> None:
    reading.wait()
    rwlock.lock()
    try:
        return
    finally:
        rwlock.unlock()


def watch() -> None:
    FAR.wait(FAR_SECONDS)
    rwlock.runlock()


join("mine")
rwlock = RWLock()
begin(read)
begin(write)
if MODE == "watched":
    begin(watch)
stay()
