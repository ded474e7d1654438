"""The interface of the two engines: units of an archive go in, a kernel processes them, a small table comes out.

The kernels are pure Arrow. ``LocalEngine`` runs them here, in one process or several;
:class:`detector.spark.analyze.SparkEngine` runs the same ones in Spark's workers.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Protocol, Self

import pyarrow as pa

from detector.archive.files import ArchiveFiles
from detector.archive.units import Unit, shares
from detector.archive.without_pandas import spare_pandas

ROWS_PER_PROCESS_MIN = 500_000
"""Below this a process is not worth its start (about a second)."""
SHARES_PER_PROCESS = 4
TRIES = 2
"""How often the work is begun if a process dies of it."""


class WorkerDiedError(RuntimeError):
    """Processes that worked were killed; one line that says what to do."""


class Kernel(Protocol):
    """What is done with units: a value that can be sent to another process."""

    @property
    def name(self) -> str:
        """What it does, for people who watch."""

    @property
    def schema(self) -> pa.Schema:
        """Of what it gives."""

    @property
    def keys(self) -> tuple[str, ...]:
        """The columns by which rows of several parts are put together; empty: they are not."""

    def work(self, store: ArchiveFiles, units: Iterable[Unit], part: int) -> Iterator[pa.Table]:
        """What some neighbouring units give; ``part`` is their number among all such runs of units."""

    def merge(self, tables: Iterable[pa.Table]) -> pa.Table:
        """The rows of several parts as one table."""


class Engine(Protocol):
    """Where kernels run."""

    @property
    def name(self) -> str:
        """``local`` or ``spark``."""

    def run(self, location: str, units: Sequence[Unit], kernel: Kernel) -> pa.Table:
        """What ``kernel`` makes of the units of the archive at ``location``."""


class LocalEngine:
    """Runs kernels in this process, or in up to ``processes`` child processes where there are enough rows.

    ``progress`` is called with the number of parts done, and of all parts. Close it when done, or use it in a ``with``.
    """

    name = "local"

    def __init__(
        self,
        *,
        processes: int = 1,
        rows_per_process_min: int = ROWS_PER_PROCESS_MIN,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        self._processes = processes
        self._rows_per_process_min = rows_per_process_min
        self._progress = progress
        self._pool: ProcessPoolExecutor | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def run(self, location: str, units: Sequence[Unit], kernel: Kernel) -> pa.Table:
        """As :meth:`Engine.run`."""
        processes = min(self._processes, int(sum(unit.rows for unit in units) // self._rows_per_process_min))
        parts = shares(units, SHARES_PER_PROCESS * max(1, processes))
        tasks = [(location, part, kernel, number) for number, part in enumerate(parts)]
        if processes < 2:
            return kernel.merge(self._with_progress(map(_part, tasks), len(tasks)))
        for _ in range(TRIES):  # a part that is written again replaces the one before
            if self._pool is None:  # the next run finds it warm
                spawn = multiprocessing.get_context("spawn")  # Arrow's threads survive no fork
                self._pool = ProcessPoolExecutor(processes, spawn, initializer=spare_pandas)
            try:
                return kernel.merge(self._with_progress(self._pool.map(_part, tasks), len(tasks)))
            except BrokenProcessPool:
                self._pool.shutdown()
                self._pool = None
        raise WorkerDiedError(f"cannot {kernel.name}: its worker process was killed {TRIES} times in a row; out of memory?")

    def _with_progress(self, tables: Iterable[pa.Table], total: int) -> Iterator[pa.Table]:
        for done, table in enumerate(tables, start=1):
            yield table
            if self._progress is not None:
                self._progress(done, total)


def _part(task: tuple[str, Sequence[Unit], Kernel, int]) -> pa.Table:
    location, units, kernel, number = task
    return kernel.merge(kernel.work(ArchiveFiles(location), units, number))
