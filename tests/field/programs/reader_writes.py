"""elarivie/pyReaderWriterLock 12: a thread that is reading wants to write; no lock of the library can be upgraded."""

import threading
import time

from field_program import FAR_SECONDS, MODE, begin, join, stay
from readerwriterlock import rwlock

FAR = threading.Event()
table = rwlock.RWLockFair()
reading = table.gen_rlock()


def update() -> None:
    with reading:
        if MODE == "slow":
            FAR.wait(FAR_SECONDS)
        if MODE == "limit":
            table.gen_wlock().acquire(timeout=FAR_SECONDS)
        if MODE == "released_before":
            reading.release()
            begin(read_for_long).join(0.5)
        with table.gen_wlock():  # core: table
            pass


def read_for_long() -> None:
    with table.gen_rlock():
        FAR.wait(FAR_SECONDS)


def wait_for(worker: threading.Thread) -> None:
    worker.join()  # core: table


def rescue() -> None:
    time.sleep(FAR_SECONDS)
    reading.release()


join("table")
if MODE == "rescued":
    begin(rescue)
begin(wait_for, begin(update))
stay()
