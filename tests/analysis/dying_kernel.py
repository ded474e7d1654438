"""Kernels that tell where they run, never come to their end, or whose process is killed in the middle of the work."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from detector.archive.files import ArchiveFiles
from detector.archive.units import Unit


@dataclass(frozen=True)
class DyingKernel:
    """Counts rows; ``mark``: a file that it leaves when it dies, and it dies no more once that is there, unless ``always``."""

    mark: Path
    always: bool = False

    name = "count rows"
    schema = pa.schema([("rows", pa.int64())])
    keys = ()
    reports_per_row = 1.0

    def work(self, store: ArchiveFiles, units: Iterable[Unit], part: int) -> Iterator[pa.Table]:
        if self.always or not self.mark.exists():
            self.mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        rows = sum(unit.read(store, pa.schema([("snapshot", pa.int64())]))[0].num_rows for unit in units)
        yield pa.table({"rows": [rows]}, schema=self.schema)

    def merge(self, tables: Iterable[pa.Table]) -> pa.Table:
        return pa.concat_tables([self.schema.empty_table(), *tables])


@dataclass(frozen=True)
class StandingKernel:
    """Never ends; ``folder``: where each process that works leaves a file called by its id."""

    folder: Path

    name = "stand"
    schema = pa.schema([("rows", pa.int64())])
    keys = ()
    reports_per_row = 1.0

    def work(self, store: ArchiveFiles, units: Iterable[Unit], part: int) -> Iterator[pa.Table]:
        (self.folder / str(os.getpid())).touch()
        threading.Event().wait()
        yield self.schema.empty_table()

    def merge(self, tables: Iterable[pa.Table]) -> pa.Table:
        return pa.concat_tables([self.schema.empty_table(), *tables])


@dataclass(frozen=True)
class LocatingKernel:
    """Returns the id of the process that each part ran in."""

    reports_per_row: float = 1.0

    name = "locate"
    schema = pa.schema([("process", pa.int64())])
    keys = ()

    def work(self, store: ArchiveFiles, units: Iterable[Unit], part: int) -> Iterator[pa.Table]:
        yield pa.table({"process": [os.getpid()]}, schema=self.schema)

    def merge(self, tables: Iterable[pa.Table]) -> pa.Table:
        return pa.concat_tables([self.schema.empty_table(), *tables])
