"""The days of an archive in an analysis: a day's results are kept as long as its files do not change."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from detector.analysis.counters import DAILY, DAY, SnapshotTimes
from detector.analysis.engine import Engine
from detector.analysis.findings.coverage import HEADERS, Headers, read_units
from detector.analysis.kernels import HEADS, LEFT_OUT, VERDICTS, Count, Evaluate, heads_of
from detector.analysis.result_folder import Manifest, ResultFile, Results, check_rows
from detector.analysis.verdicts import FOUND
from detector.archive.units import Archive, Unit, by_day
from stilltrue import __version__

HEADER_CACHE, TALLY_CACHE = "_headers", "_tally"
"""Tables kept for each day besides its verdicts; readers ignore names that begin with an underscore."""


@dataclass(slots=True, kw_only=True)
class Days:
    """One analysis over the days of ``archive``. ``before`` is the last manifest; ``tables``, ``sources`` become the next."""

    engine: Engine
    archive: Archive
    results: Results
    before: Manifest
    tables: dict[str, list[ResultFile]] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    kept: int = 0
    """Number of days whose verdicts were reused."""

    def headers(self) -> Headers:
        """Return the headers of all snapshots."""
        headers = Headers()
        for at, (day, units) in enumerate(by_day(self.archive.units("snapshots")).items()):
            source = _source(units)
            kept = self._kept(HEADER_CACHE, day, source)
            if kept is not None:
                headers.count(self.results.read(kept, HEADERS))
                continue
            rows, failed = read_units(self.archive, units)
            headers.left_out += failed
            headers.count(rows)
            file = self.results.write_part(HEADER_CACHE, day, at, [rows], HEADERS)
            self._record(HEADER_CACHE, day, [file], "" if failed else source)
        return headers

    def verdicts(self, kernel: Evaluate) -> pa.Table:
        """Return the ``HEADS`` of all verdicts. Raises :class:`CountsError` if verdicts that were written are not found."""
        units = by_day(self.archive.units("snapshots"))
        asked = [list(kernel.predicates), {name: dict(given) for name, given in kernel.settings.items()}]
        sources = {day: _source(own, asked) for day, own in units.items()}
        found = [HEADS.empty_table()]
        for day, source in sources.items():
            kept = self._kept(VERDICTS, day, source)
            if kept is not None:
                self.kept += 1
                heads = pa.schema([FOUND.field(name) for name in HEADS.names[:-2]])
                found.append(heads_of(self.results.read(kept, heads)))
        stale = [unit for day, own in units.items() if f"{VERDICTS}/{day}" not in self.sources for unit in own]
        heads = self.engine.run(self.archive.store.location, stale, kernel) if stale else HEADS.empty_table()
        self._check(int(pc.sum(pc.is_valid(heads.column("predicate"))).as_py() or 0))
        unreadable = set(heads.column("left_out_path").drop_null().to_pylist())
        self._record_written(VERDICTS, stale, sources, unreadable)
        return pa.concat_tables([*found, heads])

    def counted(self, ends: Mapping[str, SnapshotTimes]) -> pa.Table:
        """Return the tallies of all days."""
        units = by_day(self.archive.units("reports"))
        sources = {day: _source(own, _times_of(own, ends)) for day, own in units.items()}
        found = [DAILY.empty_table()]
        for day, source in sources.items():
            kept = self._kept(TALLY_CACHE, day, source)
            if kept is not None:
                found.append(self.results.read(kept, DAILY))
        stale = [unit for day, own in units.items() if f"{TALLY_CACHE}/{day}" not in self.sources for unit in own]
        if stale:
            tally = self.engine.run(self.archive.store.location, stale, Count(ends=ends))
            unreadable = set(tally.filter(pc.equal(tally.column("kind"), LEFT_OUT)).column("one").to_pylist())
            for at, day in enumerate(by_day(stale)):
                rows = tally.filter(pc.equal(tally.column(DAY), day))
                self.results.write_part(TALLY_CACHE, day, at, [rows], DAILY)
            self._record_written(TALLY_CACHE, stale, sources, unreadable)
            found.append(tally)
        return pa.concat_tables(found)

    def add(self, table: str, file: ResultFile) -> None:
        """Add a table of one file."""
        self.tables.setdefault(table, []).append(file)

    def manifest(self) -> Manifest:
        """Return the manifest to commit."""
        tables = {name: tuple(files) for name, files in sorted(self.tables.items())}
        sources = {key: source for key, source in sorted(self.sources.items()) if source}
        return Manifest(number=self.before.number + 1, tables=tables, sources=sources)

    def _kept(self, table: str, day: str, source: str) -> Sequence[ResultFile] | None:
        kept = self.before.of_day(table, day, source)
        if kept is None or not self.results.intact(kept):
            return None
        self._record(table, day, kept, source)
        return kept

    def _record(self, table: str, day: str, files: Iterable[ResultFile], source: str) -> None:
        self.tables.setdefault(table, []).extend(files)
        self.sources[f"{table}/{day}"] = source

    def _record_written(self, table: str, units: Iterable[Unit], sources: Mapping[str, str], unreadable: set[str]) -> None:
        """Record the files that this run wrote; a day with an unreadable file is evaluated again the next time."""
        files = self.results.written(table)
        for day, own in by_day(units).items():
            incomplete = any(piece.file.path in unreadable for unit in own for piece in unit.pieces)
            self._record(table, day, [file for file in files if file.day == day], "" if incomplete else sources[day])

    def _check(self, expected: int) -> None:
        written = sum(file.rows for file in self.results.written(VERDICTS))
        check_rows(expected, written, f"{self.results.location}/{VERDICTS}")


def _source(units: Iterable[Unit], *more: Any) -> str:
    """Return a fingerprint of a day's inputs and of the version that evaluates them."""
    inputs = json.dumps([__version__, [unit.source for unit in units], *more], sort_keys=True, default=str)
    return hashlib.sha256(inputs.encode()).hexdigest()[:32]


def _times_of(units: Iterable[Unit], ends: Mapping[str, SnapshotTimes]) -> list[str]:
    """Return digests of the times of the snapshots that a day's reports belong to: its tallies depend on them, too."""
    found = []
    for archive in sorted({piece.file.archive for unit in units for piece in unit.pieces}):
        own = ends.get(archive)
        numbers = [each for unit in units for piece in unit.pieces if (each := piece.file.snapshots) is not None]
        if own is None or not numbers:
            found.append(f"{archive} {'' if own is None else _digest(own.snapshot, own.begun, own.ended)}")
            continue
        low, high = min(first for first, _ in numbers), max(last for _, last in numbers)
        at = slice(*np.searchsorted(own.snapshot, [low, high + 1]).tolist())
        found.append(f"{archive} {_digest(own.snapshot[at], own.begun[at], own.ended[at])}")
    return found


def _digest(*columns: Any) -> str:
    return hashlib.sha256(b"".join(column.tobytes() for column in columns)).hexdigest()[:32]
