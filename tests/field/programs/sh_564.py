"""amoffat/sh 564: a callback runs under the lock of `wait()`, and asks for the text, which waits."""

import threading

from field_program import FAR_SECONDS, MODE, begin, join, stay

ended = threading.Event()


class Command:
    """A command that has ended: the first who waits for it runs the callback."""

    def __init__(self) -> None:
        self.lock = threading.RLock() if MODE == "reentrant" else threading.Lock()
        self.is_told = False

    def wait(self) -> None:
        if MODE == "patience" and self.is_told:
            self.lock.acquire(timeout=FAR_SECONDS)
        with self.lock:  # core: shell
            if not self.is_told:
                self.is_told = True
                done(self)

    def __str__(self) -> str:
        self.wait()
        return "sleep 1"


def done(command: Command) -> None:
    ended.set()
    if MODE == "slow":
        threading.Event().wait(FAR_SECONDS)
    str(command)
    threading.Event().wait(FAR_SECONDS)


if __name__ == "__main__":
    join("shell")
    begin(Command().wait)
    ended.wait()
    stay()
