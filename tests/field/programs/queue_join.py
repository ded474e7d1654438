"""A process joins its worker before it has read the worker's results; the worker ends once there is room for them."""

import multiprocessing
import subprocess
import sys
import threading
from multiprocessing.queues import Queue
from typing import Any

from field_program import FAR_SECONDS, MODE, begin, end_with_parent, join, publish, published, ready
from terminating import begin_to_terminate

SIZE = 1 << 20
"""More bytes than there is room for in a pipe."""
_READS_LATER = """
import ctypes, os, time
ctypes.CDLL(None).prctl(1, 9)
time.sleep({})
os.read({}, 1)
"""


def work(results: "Queue[bytes]") -> None:
    end_with_parent()
    join("worker")
    if MODE == "slow":
        publish("worker", "")
        threading.Event().wait(FAR_SECONDS)
    results.put(bytes(1 if MODE == "slow" else SIZE))
    publish("worker", "")


def supervise() -> None:
    spawn: Any = multiprocessing.get_context("spawn")
    results = spawn.Queue()
    worker = spawn.Process(target=work, args=(results,), daemon=True)
    worker.start()
    if MODE == "other_thread":
        begin(read_later, results)
    begin_to_terminate(worker)
    if MODE == "third":
        reader = results._reader.fileno()
        subprocess.Popen([sys.executable, "-ISc", _READS_LATER.format(FAR_SECONDS, reader)], pass_fds=(reader,))
    published("worker")
    ready()
    worker.join(FAR_SECONDS if MODE == "patience" else None)  # core: supervisor
    results.get()


def read_later(results: "Queue[bytes]") -> None:
    threading.Event().wait(FAR_SECONDS)
    results.get()


if __name__ == "__main__":
    join("supervisor")
    supervise()
