"""Writes finished snapshots to the archive: gathers several, then writes one file per table, that of ``snapshots`` last.

A snapshot is archived once its row in ``snapshots`` exists. A crash before that leaves rows without a snapshot, which readers
of complete snapshots ignore. With a journal, the next writer recovers them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from detector.archive.files import ArchiveFiles, Positions, day_of, snapshots_of_name
from detector.archive.journal import Journal
from detector.archive.offsets import next_positions
from detector.archive.rows.column_encoder import ColumnEncoder
from detector.archive.rows.local_state_rows import Row
from detector.archive.rows.row_encoder import report_rows, snapshot_row, verdict_row
from detector.archive.rows.schema import TABLES
from detector.core.protocol.assembler import Assembled
from detector.ops.files.atomic_file import write_atomically
from stilltrue.model import ProcessId, ProcessName, Verdict

ORDER = ("reports", "verdicts", "incidents", "snapshots")
ID = "archive-id"
KEYS = {"reports": "process", "verdicts": "predicate", "incidents": "id", "snapshots": "scope"}


class ArchiveWriter:
    """Gathers finished snapshots and writes them a file at a time. Not thread-safe."""

    def __init__(
        self,
        store: ArchiveFiles,
        *,
        archive: str = "",
        reports_max: int = 20_000,
        seconds_max: float = 300.0,
        clock: Callable[[], float] = time.time,
        journal: Journal | None = None,
    ) -> None:
        """``journal`` preserves gathered rows if the process is killed; without one they are lost.

        ``archive``: the detector's id, which distinguishes its snapshots from another detector's in the same folder.

        Files are written once there are ``reports_max`` reports, after ``seconds_max``, or when the day ends."""
        self.store = store
        self._archive = archive
        self._encoder = ColumnEncoder(archive)
        self._clock = clock
        self._next: dict[str, Positions] = {}
        self._reports_max = reports_max
        self._seconds_max = seconds_max
        self._tables: dict[str, list[pa.Table]] = {table: [] for table in ORDER}
        self._journal = journal
        self._day = ""
        self._began = 0.0
        self.unrecovered = False
        """Whether rows are left in the journal after a failure, for :meth:`recover`; call it before the next :meth:`add`."""
        self.dropped = 0
        """Number of rows that could not be written because a process reported a number out of range."""

    @property
    def gathered(self) -> int:
        """The number of snapshots that are not written yet."""
        return len(self._tables["snapshots"])

    def add(
        self,
        assembled: Assembled,
        verdicts: Sequence[Verdict] = (),
        incidents: Sequence[Row] = (),
        members: Mapping[ProcessName, ProcessId] | None = None,
    ) -> list[str]:
        """Add a finished snapshot; return the paths of the files that were due and written.

        Parameters
        ----------
        assembled, verdicts : the snapshot and its verdicts.
        incidents : rows of ``incidents`` that changed with this snapshot (``snapshot`` and ``begun`` are filled in).
        members : the members' ids; ``assembled`` does not have the incarnations of missing ones.
        """
        ref = assembled.snapshot.ref
        begun = ref.begun or 0.0
        written = self.flush() if self.gathered and self._due(begun) else []
        if not self.gathered:
            self._day, self._began = day_of(begun), begun
        tables = self._encoded(assembled, members or {})
        others: dict[str, list[Row]] = {
            "verdicts": list(map(verdict_row, verdicts)),
            "incidents": [row | {"snapshot": ref.id, "begun": ref.begun} for row in incidents],
        }
        for table, rows in others.items():
            if rows:
                tables[table] = table_of(table, rows, self._archive)
                self.dropped += len(rows) - tables[table].num_rows
        for table, data in tables.items():
            self._tables[table].append(data)
        if self._journal is not None:
            self._journal.append(tables)
        return written

    def _encoded(self, assembled: Assembled, members: Mapping[ProcessName, ProcessId]) -> dict[str, pa.Table]:
        """Encode the snapshot and its reports."""
        try:
            tables = {"reports": self._encoder.reports(assembled), "snapshots": self._encoder.snapshot(assembled, members)}
        except (pa.ArrowException, OverflowError):  # a number is out of range: go row by row and drop the rows that have one
            self._encoder = ColumnEncoder(self._archive)
            rows: dict[str, list[Row]] = {"reports": report_rows(assembled), "snapshots": [snapshot_row(assembled, members)]}
            tables = {table: table_of(table, each, self._archive) for table, each in rows.items() if each}
            self.dropped += sum(len(rows[table]) - data.num_rows for table, data in tables.items())
        return {table: data for table, data in tables.items() if table != "reports" or assembled.reports}

    def recover(self) -> int:
        """Write the rows that a killed writer or a failed :meth:`flush` left in the journal; return the number of snapshots.

        Call it before :meth:`add`. If it raises OSError, the rows stay in the journal.
        """
        self.unrecovered = True
        left: dict[tuple[str, str], list[pa.Table]] = {}
        for table, data in () if self._journal is None else self._journal.read():
            left.setdefault((table, day_of(data.column("begun")[0].as_py())), []).append(data)
        snapshots = 0
        for (table, day), parts in sorted(left.items(), key=lambda each: (each[0][1], ORDER.index(each[0][0]))):
            written = _written(self.store, table, day, {_number(part) for part in parts})
            lost = [part for part in parts if _number(part) not in written]
            if lost:
                self._day = day
                self._write(table, _joined(lost))
                snapshots += len(lost) if table == "snapshots" else 0
        if self._journal is not None:
            self._journal.clear()
        self.unrecovered = False
        return snapshots

    def _due(self, begun: float) -> bool:
        full = sum(data.num_rows for data in self._tables["reports"]) >= self._reports_max
        return full or day_of(begun) != self._day or begun - self._began >= self._seconds_max

    def flush(self) -> list[str]:
        """Write the gathered rows; return the paths. If that raises OSError, only the journal still has the rows."""
        tables, self._tables = self._tables, {table: [] for table in ORDER}
        try:
            return [self._write(table, _joined(tables[table])) for table in ORDER if tables[table]]
        except OSError:
            self.unrecovered = self._journal is not None
            raise
        finally:
            if self._journal is not None and not self.unrecovered:
                self._journal.clear()

    def _write(self, table: str, data: pa.Table) -> str:
        at = self._next.get(table) or next_positions(self.store, table, self._clock())
        path = self.store.write(table, self._day, data, positions=at)
        end = at.first + data.num_rows
        self._next[table] = Positions(after=end, first=end)
        return path


def table_of(table: str, rows: Sequence[Row], archive: str = "") -> pa.Table:
    """Convert rows to columns, sorted by snapshot and then by the table's key."""
    ordered = sorted(rows, key=lambda row: (row["snapshot"] or 0, row[KEYS[table]]))
    named = [row | {"archive": archive} for row in ordered] if archive else ordered
    try:
        return pa.Table.from_pylist(named, schema=TABLES[table])
    except (pa.ArrowException, OverflowError):  # a number out of range drops only its own row
        return pa.Table.from_pylist([row for row in named if _fits(table, row)], schema=TABLES[table])


def _joined(parts: Sequence[pa.Table]) -> pa.Table:
    """Concatenate the tables of several snapshots, by snapshot."""
    return pa.concat_tables(sorted(parts, key=_number))


def _number(part: pa.Table) -> int:
    """Return the snapshot number of a table."""
    return int(part.column("snapshot")[0].as_py() or 0) if part.num_rows else 0


def _written(store: ArchiveFiles, table: str, day: str, snapshots: set[int]) -> set[int]:
    """Return the snapshots in the day's files that may have some of ``snapshots``."""
    found: set[int] = set()
    for entry in store.entries(table, day) if day in store.days(table) else ():
        low, high = snapshots_of_name(PurePosixPath(entry.path).name) or (0, -1)
        if any(low <= number <= high for number in snapshots):
            with store.filesystem.open_input_file(entry.path) as file:
                found.update(pq.read_table(file, columns=["snapshot"]).column("snapshot").to_pylist())
    return found


def _fits(table: str, row: Row) -> bool:
    try:
        pa.Table.from_pylist([row], schema=TABLES[table])
    except (pa.ArrowException, OverflowError):
        return False
    return True


def archive_id(directory: Path) -> str:
    """Return the id of the detector whose data are in ``directory``; it is created once and kept in a file. Raises OSError."""
    path = directory / ID
    if not path.exists():
        directory.mkdir(parents=True, exist_ok=True)
        write_atomically(path, f"{uuid4().hex[:12]}\n".encode())
    return path.read_text().strip()
