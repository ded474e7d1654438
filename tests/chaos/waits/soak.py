"""Runs the programs of this room under a detector that takes a snapshot every 100 ms: ``python -m tests.chaos.waits.soak``.

It fails on the first TRUE, and when a kind of work has come to a halt: a program that is stuck proves nothing.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from detector.demo.harness import Harness, ManagedProcess
from tests.healthy import HALT_SECONDS, FalseTrueError, Watched, main

PROGRAMS = ("contended", "helped", "between")
PREDICATES = ("deadlock", "orphaned-resource")
PERIOD_SECONDS = 0.1
ROOT = Path(__file__).parents[3]


class Soak:
    """One run."""

    def __init__(self, harness: Harness) -> None:
        self._watched = Watched(harness)
        self._harness = harness
        self._done: dict[str, int] = {}
        self._moved: dict[str, float] = {}

    def run(self, seconds: float) -> str:
        """How much was done in ``seconds``, in words. Raises :class:`FalseTrueError`."""
        self._harness.start_detector("--period-seconds", str(PERIOD_SECONDS))
        started = [self._start(name) for name in PROGRAMS]
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for process in started:
                self._count(process.name, process.line())
            self._watched.check()
        for predicate in PREDICATES:
            if self._watched.demo.verdict(predicate)["holds"] is True:
                raise FalseTrueError(f"{predicate} is TRUE")
        snapshots = self._watched.snapshots()
        return f"{sum(self._done.values())} rounds of {len(self._done)} kinds, {snapshots} snapshots, no TRUE"

    def _start(self, name: str) -> ManagedProcess:
        command = [sys.executable, "-m", f"tests.chaos.waits.{name}"]
        environment = {
            "STILLTRUE_DETECTOR": self._harness.detector,
            "PYTHONPATH": str(ROOT),
            "STILLTRUE_BLOCK_SECONDS_MAX": "0.3",
        }
        process = ManagedProcess(name, command, environment=environment, log=self._harness.folder / f"{name}.log")
        self._harness.processes[name] = process
        return process

    def _count(self, program: str, line: str) -> None:
        now = time.monotonic()
        for part in line.split():
            name, _, count = part.partition("=")
            key = f"{program} {name}"
            if int(count) != self._done.get(key):
                self._done[key], self._moved[key] = int(count), now
            elif now - self._moved[key] > HALT_SECONDS:
                raise FalseTrueError(f"{key} has come to a halt")


if __name__ == "__main__":
    main(lambda harness, seconds: Soak(harness).run(seconds), "seconds", __doc__)
