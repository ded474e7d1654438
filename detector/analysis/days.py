"""The days of an archive in an analysis: what was made of a day's files before is kept while those files are the same."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from detector.analysis.counters import DAILY, DAY, Ends
from detector.analysis.engine import Engine
from detector.analysis.findings.coverage import HEADERS, Headers, read_units
from detector.analysis.kernels import HEADS, LEFT_OUT, VERDICTS, Count, Evaluate, heads_of
from detector.analysis.result_folder import Manifest, ResultFile, Results, check_rows
from detector.analysis.verdicts import FOUND
from detector.archive.units import Archive, Unit, by_day
from stilltrue import __version__

HEADER_CACHE, TALLY_CACHE = "_headers", "_tally"
"""What is kept of each day beside its verdicts; readers pass over names that begin with an underscore."""


@dataclass(slots=True, kw_only=True)
class Days:
    """One analysis over the days of ``archive``; ``before`` is what was committed last.

    ``tables`` and ``sources`` gather what the next manifest says.
    """

    engine: Engine
    archive: Archive
    results: Results
    before: Manifest
    tables: dict[str, list[ResultFile]] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    kept: int = 0
    """Days whose verdicts were there."""

    def headers(self) -> Headers:
        """The headers of all snapshots."""
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
            self._made(HEADER_CACHE, day, [file], "" if failed else source)
        return headers

    def verdicts(self, kernel: Evaluate) -> pa.Table:
        """The ``HEADS`` of all verdicts. Raises :class:`CountsError` when those written are not there."""
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
        torn = set(heads.column("left_out_path").drop_null().to_pylist())
        self._written(VERDICTS, stale, sources, torn)
        return pa.concat_tables([*found, heads])

    def counted(self, ends: Mapping[str, Ends]) -> pa.Table:
        """The tallies of all days."""
        units = by_day(self.archive.units("reports"))
        sources = {day: _source(own, _ends_of(own, ends)) for day, own in units.items()}
        found = [DAILY.empty_table()]
        for day, source in sources.items():
            kept = self._kept(TALLY_CACHE, day, source)
            if kept is not None:
                found.append(self.results.read(kept, DAILY))
        stale = [unit for day, own in units.items() if f"{TALLY_CACHE}/{day}" not in self.sources for unit in own]
        if stale:
            tally = self.engine.run(self.archive.store.location, stale, Count(ends=ends))
            torn = set(tally.filter(pc.equal(tally.column("kind"), LEFT_OUT)).column("one").to_pylist())
            for at, day in enumerate(by_day(stale)):
                rows = tally.filter(pc.equal(tally.column(DAY), day))
                self.results.write_part(TALLY_CACHE, day, at, [rows], DAILY)
            self._written(TALLY_CACHE, stale, sources, torn)
            found.append(tally)
        return pa.concat_tables(found)

    def add(self, table: str, file: ResultFile) -> None:
        """A table of one file."""
        self.tables.setdefault(table, []).append(file)

    def manifest(self) -> Manifest:
        """What is to be committed."""
        tables = {name: tuple(files) for name, files in sorted(self.tables.items())}
        sources = {key: source for key, source in sorted(self.sources.items()) if source}
        return Manifest(number=self.before.number + 1, tables=tables, sources=sources)

    def _kept(self, table: str, day: str, source: str) -> Sequence[ResultFile] | None:
        kept = self.before.of_day(table, day, source)
        if kept is not None:
            self._made(table, day, kept, source)
        return kept

    def _made(self, table: str, day: str, files: Iterable[ResultFile], source: str) -> None:
        self.tables.setdefault(table, []).extend(files)
        self.sources[f"{table}/{day}"] = source

    def _written(self, table: str, units: Iterable[Unit], sources: Mapping[str, str], torn: set[str]) -> None:
        """Take the files of this run; a day with a file that proved unreadable is read again the next time."""
        files = self.results.written(table)
        for day, own in by_day(units).items():
            hurt = any(piece.file.path in torn for unit in own for piece in unit.pieces)
            self._made(table, day, [file for file in files if file.day == day], "" if hurt else sources[day])

    def _check(self, told: int) -> None:
        written = sum(file.rows for file in self.results.written(VERDICTS))
        check_rows(told, written, f"{self.results.location}/{VERDICTS}")


def _source(units: Iterable[Unit], *more: Any) -> str:
    """What a day's results are made from, and by which version, in a few letters."""
    told = json.dumps([__version__, [unit.source for unit in units], *more], sort_keys=True, default=str)
    return hashlib.sha256(told.encode()).hexdigest()[:32]


def _ends_of(units: Iterable[Unit], ends: Mapping[str, Ends]) -> list[str]:
    """When the snapshots began and ended of which a day has reports: its tallies follow from them, too."""
    told = []
    for archive in sorted({piece.file.archive for unit in units for piece in unit.pieces}):
        own = ends.get(archive)
        numbers = [each for unit in units for piece in unit.pieces if (each := piece.file.snapshots) is not None]
        if own is None or not numbers:
            told.append(f"{archive} {'' if own is None else _digest(own.snapshot, own.begun, own.ended)}")
            continue
        low, high = min(first for first, _ in numbers), max(last for _, last in numbers)
        at = slice(*np.searchsorted(own.snapshot, [low, high + 1]).tolist())
        told.append(f"{archive} {_digest(own.snapshot[at], own.begun[at], own.ended[at])}")
    return told


def _digest(*columns: Any) -> str:
    return hashlib.sha256(b"".join(column.tobytes() for column in columns)).hexdigest()[:32]
