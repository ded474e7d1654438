"""A supervisor and its worker send each other a large message over one connection before they read: neither has room."""

import multiprocessing
import subprocess
import sys
import threading
from multiprocessing.connection import Connection
from typing import Any

from field_program import FAR_SECONDS, MODE, begin, end_with_parent, join, publish, published, ready
from terminating import begin_to_terminate

LARGE = 1 << 20 if MODE != "small" else 1
_WAITS = "import ctypes, time; ctypes.CDLL(None).prctl(1, 9); time.sleep({})"


def work(supervisor: Connection) -> None:
    end_with_parent()
    join("worker")
    publish("worker", "")
    if MODE == "small":
        threading.Event().wait(FAR_SECONDS)
    supervisor.send_bytes(bytes(LARGE))  # core: worker
    supervisor.recv_bytes()


def supervise() -> None:
    spawn: Any = multiprocessing.get_context("spawn")
    worker, supervisor = spawn.Pipe()
    process = spawn.Process(target=work, args=(supervisor,), daemon=True)
    process.start()
    if MODE == "third":
        end = supervisor.fileno()
        subprocess.Popen([sys.executable, "-ISc", _WAITS.format(FAR_SECONDS)], pass_fds=(end,))
    supervisor.close()
    if MODE == "other_thread":
        begin(read_later, worker)
    begin_to_terminate(process)
    published("worker")
    ready()
    worker.send_bytes(bytes(LARGE))  # core: supervisor
    worker.recv_bytes()


def read_later(worker: Connection) -> None:
    threading.Event().wait(FAR_SECONDS)
    worker.recv_bytes()


if __name__ == "__main__":
    join("supervisor")
    supervise()
