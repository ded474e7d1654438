"""A worker asks its supervisor for the next task, while the supervisor waits for the result of the last: both read a pipe."""

import multiprocessing
import subprocess
import sys
import threading
from multiprocessing.connection import Connection
from typing import Any

from field_program import FAR_SECONDS, MODE, begin, end_with_parent, join, publish, published, ready
from terminating import begin_to_terminate

_WRITES_LATER = """
import ctypes, os, time
ctypes.CDLL(None).prctl(1, 9)
time.sleep({})
os.write({}, bytes(4))
"""


def work(tasks: Connection, results: Connection) -> None:
    end_with_parent()
    join("worker")
    publish("worker", "")
    if MODE == "slow":
        threading.Event().wait(FAR_SECONDS)
        results.send("")
    if MODE != "patience" or tasks.poll(FAR_SECONDS):
        tasks.recv()  # core: worker
    results.send("")


def supervise() -> None:
    spawn: Any = multiprocessing.get_context("spawn")
    (tasks, sends), (results, returns) = spawn.Pipe(duplex=False), spawn.Pipe(duplex=False)
    worker = spawn.Process(target=work, args=(tasks, returns), daemon=True)
    worker.start()
    returns.close()
    if MODE == "other_thread":
        begin(send_later, sends)
    begin_to_terminate(worker)
    if MODE == "third":
        end = sends.fileno()
        subprocess.Popen([sys.executable, "-ISc", _WRITES_LATER.format(FAR_SECONDS, end)], pass_fds=(end,))
    published("worker")
    ready()
    results.recv()  # core: supervisor
    sends.send("")


def send_later(sends: Connection) -> None:
    threading.Event().wait(FAR_SECONDS)
    sends.send("")


if __name__ == "__main__":
    join("supervisor")
    supervise()
