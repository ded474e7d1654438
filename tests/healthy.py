"""Runs of programs that work under a detector: each fails when one of them is called, or comes to a halt."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from detector.demo.demos import Demo
from detector.demo.harness import Harness

HALT_SECONDS = 60.0
"""A program that makes no progress for so long proves nothing."""


class FalseTrueError(RuntimeError):
    """A program that works was called, or has come to a halt."""


class Watched:
    """A detector that is to call nobody."""

    def __init__(self, harness: Harness) -> None:
        self.demo = Demo(harness, Console(file=sys.stderr))
        self._harness = harness

    def check(self) -> None:
        """Raise :class:`FalseTrueError` if a program has been called."""
        if self.demo.count("stilltrue_incidents_total"):
            told = [self._harness.run(*command).stdout for command in (("incidents", "--json"), ("ask", "deadlock"))]
            raise FalseTrueError("called: " + "\n".join(told))

    def snapshots(self) -> float:
        """How many the detector has taken."""
        return self.demo.count("stilltrue_snapshots_total")


def main(run: Callable[[Harness, float], str], unit: str, text: str | None) -> None:
    """Run for the time that ``--UNIT`` says, 60 unless told, and print what was done."""
    parser = argparse.ArgumentParser(description=text)
    parser.add_argument(f"--{unit}", type=float, default=60.0)
    time = getattr(parser.parse_args(), unit)
    with tempfile.TemporaryDirectory() as folder, Harness(Path(folder)) as harness:
        print(run(harness, time))
