"""Programs from the package index under way for a long time, restarted one process after another: not one TRUE.

``python -m tests.apps.rolling --minutes 60``: a Flower server with three clients, and a FastAPI application under uvicorn with
two workers before a gRPC service; all under ``stilltrue run``, with a snapshot twice a second. It fails on the first incident,
and when somebody has made no progress for a minute: a program that is stuck proves nothing.

Flower's server is killed, never terminated. Its handler of SIGTERM submits to an executor (``flwr/common/telemetry.py``); where
the main thread was just doing so, it holds the global lock of ``concurrent.futures``, and waits for itself for ever. That is a
true deadlock of Flower 1.21: this run called it, by file and line, half a second after the signal.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle

from detector.demo.harness import Harness, ManagedProcess
from tests.apps.run import BIN, PROGRAMS, room_of
from tests.free_ports import free_port
from tests.healthy import HALT_SECONDS, FalseTrueError, Watched, main

PERIOD_SECONDS, RESTART_SECONDS = 0.5, 10.0


@dataclass(frozen=True)
class Part:
    """A process of a program, in the environment of ``app``.

    ``counts``: each of its lines is progress. ``terminates``: on SIGTERM, always.
    """

    app: str
    program: str
    arguments: Sequence[str]
    counts: bool = False
    restarts: bool = True
    terminates: bool = True


class Rolling:
    """One run."""

    def __init__(self, harness: Harness) -> None:
        self._harness = harness
        self._watched = Watched(harness)
        self._moved: dict[str, float] = {}
        self._done: dict[str, int] = {}
        self._restarts = 0
        flower, stock, port = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}", str(free_port())
        self._parts = {
            "aggregator": Part("flower", "flower_fleet", ("server", flower), terminates=False),
            **{f"learner-{own}": Part("flower", "flower_fleet", ("client", flower, own), counts=True) for own in "123"},
            "stock": Part("fastapi", "fastapi_fleet", ("stock", stock)),
            "web": Part("fastapi", "fastapi_fleet", ("web", stock, port)),
            "load": Part("fastapi", "fastapi_fleet", ("load", port), counts=True, restarts=False),
        }

    def run(self, minutes: float) -> str:
        """What was done in this time, in words. Raises :class:`FalseTrueError`."""
        self._harness.start_detector("--period-seconds", str(PERIOD_SECONDS))
        try:
            for name in self._parts:
                self._start(name)
            self._go_on(60 * minutes)
            done, snapshots = sum(self._done.values()), self._watched.snapshots()
            return f"{done} fits and orders, {self._restarts} restarts, {snapshots} snapshots, no TRUE"
        finally:
            for name in set(self._parts) & set(self._harness.processes):
                self._stop(name)

    def _go_on(self, seconds: float) -> None:
        end, due, turns = time.monotonic() + seconds, time.monotonic() + RESTART_SECONDS, self._turns()
        while time.monotonic() < end:
            self._read()
            self._check()
            if time.monotonic() >= due:
                next(turns)
                due = time.monotonic() + RESTART_SECONDS
            time.sleep(PERIOD_SECONDS)

    def _turns(self) -> Iterator[None]:
        """With each step the next process is restarted: most in good order, some killed."""
        signals = cycle((signal.SIGTERM, signal.SIGTERM, signal.SIGKILL))
        for name in cycle([name for name, part in self._parts.items() if part.restarts]):
            self._stop(name, next(signals) if self._parts[name].terminates else signal.SIGKILL)
            self._start(name)
            self._restarts += 1
            yield

    def _stop(self, name: str, how: int = signal.SIGKILL) -> None:
        process = self._harness.processes[name]
        process.stop(how)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.process.pid, signal.SIGKILL)  # the workers of a parent that was killed

    def _start(self, name: str) -> None:
        part = self._parts[name]
        run = [str(BIN / "stilltrue"), "run", "--detector", self._harness.detector, "--service", name, "--"]
        command = [*run, str(room_of(part.app)), str(PROGRAMS / f"{part.program}.py"), *part.arguments]
        log = self._harness.folder / f"{name}.log"
        environment = {"PYTHONSAFEPATH": "", "PYTHONPATH": str(PROGRAMS)}
        self._harness.processes[name] = ManagedProcess(name, command, environment=environment, log=log)
        self._moved.setdefault(name, time.monotonic())

    def _read(self) -> None:
        for name, part in self._parts.items():
            lines = self._harness.processes[name].lines
            while not lines.empty():
                if lines.get() is not None and part.counts:
                    self._done[name] = self._done.get(name, 0) + 1
                    self._moved[name] = time.monotonic()

    def _check(self) -> None:
        """Raise :class:`FalseTrueError` unless everybody makes progress, and nothing has been called."""
        self._watched.check()
        for name, part in self._parts.items():
            if part.counts and time.monotonic() - self._moved[name] > HALT_SECONDS:
                raise FalseTrueError(f"{name} has come to a halt")


if __name__ == "__main__":
    main(lambda harness, minutes: Rolling(harness).run(minutes), "minutes", __doc__)
