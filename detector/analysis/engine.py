"""The interface of the two engines: a kernel reduces units of an archive to a small table.

Kernels are pure Arrow. ``LocalEngine`` runs them on this machine, in one or more processes;
:class:`detector.spark.engine.SparkEngine` runs the same kernels in Spark's workers.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from typing import Protocol, Self

import pyarrow as pa

from detector.archive.files import ArchiveFiles
from detector.archive.units import Unit, shares
from detector.archive.without_pandas import hide_pandas
from detector.ops.process.worker_processes import WorkerPool

REPORTS_PER_PROCESS_MIN = 500_000
"""With fewer reports a process is not worth its start-up time (about a second)."""
SHARES_PER_PROCESS = 4
TRIES = 2
"""How often the work is started in all if worker processes die."""


class WorkerDiedError(RuntimeError):
    """Worker processes were killed; the message is one line that says what to do."""


class Kernel(Protocol):
    """A computation over units; picklable, so that it can be sent to another process."""

    @property
    def name(self) -> str:
        """What it does, for progress messages."""

    @property
    def schema(self) -> pa.Schema:
        """The schema of its results."""

    @property
    def keys(self) -> tuple[str, ...]:
        """The columns by which rows of several parts are merged; empty if they are only concatenated."""

    @property
    def reports_per_row(self) -> float:
        """How many reports a row of its units stands for, which decides among how many processes the work is divided."""

    def work(self, store: ArchiveFiles, units: Iterable[Unit], part: int) -> Iterator[pa.Table]:
        """Process neighbouring units; ``part`` is the number of this run of units."""

    def merge(self, tables: Iterable[pa.Table]) -> pa.Table:
        """Merge the results of several parts."""


class Engine(Protocol):
    """Runs kernels."""

    @property
    def name(self) -> str:
        """``local`` or ``spark``."""

    def run(self, location: str, units: Sequence[Unit], kernel: Kernel) -> pa.Table:
        """Run ``kernel`` over units of the archive at ``location``; return the merged result."""


class LocalEngine:
    """Runs kernels in this process, or in up to ``processes`` child processes if there are enough reports.

    ``progress`` is called with the number of parts done and the number of all parts. It is a context manager.
    """

    name = "local"

    def __init__(
        self,
        *,
        processes: int = 1,
        reports_per_process_min: int = REPORTS_PER_PROCESS_MIN,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        self._processes = processes
        self._reports_per_process_min = reports_per_process_min
        self._progress = progress
        self._pool: WorkerPool | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def run(self, location: str, units: Sequence[Unit], kernel: Kernel) -> pa.Table:
        """As :meth:`Engine.run`."""
        processes = min(self._processes, int(reports_of(units, kernel) // self._reports_per_process_min))
        parts = shares(units, SHARES_PER_PROCESS * max(1, processes))
        tasks = [(location, part, kernel, number) for number, part in enumerate(parts)]
        if processes < 2:
            return kernel.merge(self._with_progress(map(_part, tasks), len(tasks)))
        for _ in range(TRIES):  # a part that is written twice replaces the first
            if self._pool is None:  # kept for the next run
                self._pool = WorkerPool(processes, _prepare_worker)
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


def reports_of(units: Iterable[Unit], kernel: Kernel) -> float:
    """Return about how many reports the rows of ``units`` stand for."""
    return kernel.reports_per_row * sum(unit.rows for unit in units)


def _prepare_worker() -> None:
    """Prepare a worker process. It ends with its parent, which closes no pool if it is killed."""
    parent = multiprocessing.parent_process()
    if parent is not None:

        def end() -> None:
            parent.join()
            os._exit(1)

        threading.Thread(target=end, name="stilltrue-parent", daemon=True).start()
    prepare_process()


def prepare_process() -> None:
    """Prepare this process to run kernels: use pyarrow without pandas and with the C library's allocator.

    pyarrow's own allocator returns memory to the system and requests it again: half a second per million reports.
    """
    hide_pandas()
    pa.set_memory_pool(pa.system_memory_pool())


def _part(task: tuple[str, Sequence[Unit], Kernel, int]) -> pa.Table:
    location, units, kernel, number = task
    return kernel.merge(kernel.work(ArchiveFiles(location), units, number))
