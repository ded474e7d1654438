"""What the programs of this room share: threads that do one thing after the other for ever, and count what they have done."""

from __future__ import annotations

import random
import sys
import threading
import time
from collections.abc import Callable

import stilltrue

ROUNDS_SHOWN_SECONDS = 1.0


class Load:
    """Threads at work; each round of each kind of work is counted."""

    def __init__(self, service: str) -> None:
        """Join the detector as the only process of ``service``."""
        self.agent = stilltrue.instrument(service, instance=service)
        self.agent.start()
        self._done: dict[str, int] = {}
        self._lock = threading.Lock()

    def begin(self, name: str, work: Callable[[random.Random], object], threads: int = 1) -> None:
        """So many threads do ``work`` for ever."""
        self._done[name] = 0
        for number in range(threads):
            chance = random.Random(f"{name} {number}")
            threading.Thread(target=self._run, args=(name, work, chance), name=f"{name}-{number}", daemon=True).start()

    def did(self, name: str) -> None:
        """One round more of what is done elsewhere."""
        with self._lock:
            self._done[name] = self._done.get(name, 0) + 1

    def _run(self, name: str, work: Callable[[random.Random], object], chance: random.Random) -> None:
        while True:
            work(chance)
            self.did(name)

    def show(self) -> None:
        """Print what has been done, until the input ends: a line a second, each with all counts."""
        threading.Thread(target=self._print, daemon=True).start()
        sys.stdin.read()

    def _print(self) -> None:
        while True:
            time.sleep(ROUNDS_SHOWN_SECONDS)
            with self._lock:
                print(" ".join(f"{name}={count}" for name, count in sorted(self._done.items())), flush=True)


def pause(chance: random.Random, seconds_max: float = 0.05) -> None:
    """A short wait; now and then one that is long enough to be looked at, twice."""
    time.sleep(long_or_short(chance, seconds_max))


def long_or_short(chance: random.Random, seconds_max: float = 0.05) -> float:
    """How long a wait is, in seconds."""
    return chance.uniform(1.0, 4.0) if chance.random() < 0.06 else chance.uniform(0, seconds_max)
