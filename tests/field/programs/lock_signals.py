"""Two workers take turns by two locks, each of which the other one releases; nobody has released the first one."""

import signal
import threading

from field_program import FAR_SECONDS, MODE, begin, join, stay


class Turns:
    def __init__(self) -> None:
        self.ping, self.pong = threading.Lock(), threading.Lock()
        self.ping.acquire()
        self.pong.acquire()

    def first(self) -> None:
        if MODE == "slow":
            threading.Event().wait(FAR_SECONDS)
        if MODE == "limit":
            self.ping.acquire(timeout=FAR_SECONDS)
        else:
            self.ping.acquire()  # core: pings
        self.pong.release()

    def second(self) -> None:
        self.pong.acquire()  # core: pings
        self.ping.release()


def play() -> None:
    turns = Turns()
    begin(turns.first)
    begin(turns.second)
    if MODE == "timer":
        timer = threading.Timer(FAR_SECONDS, turns.ping.release)
        timer.daemon = True
        timer.start()
    if MODE == "handler":
        signal.signal(signal.SIGUSR1, lambda *_: turns.ping.release())


join("pings")
play()
stay()
