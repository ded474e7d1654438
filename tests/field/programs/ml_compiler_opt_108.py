"""google/ml-compiler-opt 108: a future is completed under a lock, and its callback takes the lock."""

import threading
from concurrent.futures import Future

from field_program import FAR_SECONDS, MODE, begin, join, stay

completing = threading.Event()


class Stub:
    """Calls a remote worker; replies come in a thread of its own."""

    def __init__(self) -> None:
        self.lock = threading.RLock() if MODE == "reentrant" else threading.Lock()
        self.pending: dict[int, Future[int]] = {}

    def call(self) -> "Future[int]":
        if MODE == "patience" and completing.is_set():
            self.lock.acquire(timeout=FAR_SECONDS)
        with self.lock:  # core: compiler
            reply = self.pending[len(self.pending)] = Future()
            return reply

    def receive(self) -> None:
        with self.lock:
            completing.set()
            self.pending.pop(0).set_result(1)


def again(stub: Stub) -> None:
    if MODE == "slow":
        threading.Event().wait(FAR_SECONDS)
    stub.call()
    threading.Event().wait(FAR_SECONDS)


if __name__ == "__main__":
    join("compiler")
    stub = Stub()
    stub.call().add_done_callback(lambda _: again(stub))
    begin(stub.receive)
    completing.wait()
    stay()
