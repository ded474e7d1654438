"""Runs the programs of this room under a detector that takes a snapshot every 100 ms: ``python -m tests.chaos.seen.soak``.

It fails on the first TRUE, and when a kind of work has come to a halt: a program that is stuck proves nothing.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console

from detector.demo.demos import Demo
from detector.demo.harness import Harness, ManagedProcess

PROGRAMS = ("contended", "helped")
PREDICATES = ("deadlock", "orphaned-resource")
PERIOD_SECONDS = 0.1
HALT_SECONDS = 60.0
ROOT = Path(__file__).parents[3]


class FalseTrueError(RuntimeError):
    """A healthy program was called, or has come to a halt."""


class Soak:
    """One run."""

    def __init__(self, harness: Harness) -> None:
        self._demo = Demo(harness, Console(file=sys.stderr))
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
            self._check()
        for predicate in PREDICATES:
            if self._demo.verdict(predicate)["holds"] is True:
                raise FalseTrueError(f"{predicate} is TRUE")
        snapshots = self._demo.count("stilltrue_snapshots_total")
        return f"{sum(self._done.values())} rounds of {len(self._done)} kinds, {snapshots} snapshots, no TRUE"

    def _start(self, name: str) -> ManagedProcess:
        command = [sys.executable, "-m", f"tests.chaos.seen.{name}"]
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

    def _check(self) -> None:
        if self._demo.count("stilltrue_incidents_total"):
            raise FalseTrueError(f"a false TRUE: {self._harness.run('incidents', '--json').stdout}")


def main() -> None:
    """Run for ``--seconds``."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    with tempfile.TemporaryDirectory() as folder, Harness(Path(folder)) as harness:
        print(Soak(harness).run(parser.parse_args().seconds))


if __name__ == "__main__":
    main()
