"""One bucket of one micro-batch: what waited and what came, what is finished now, its verdicts, and what goes on waiting.

A snapshot is finished when as many processes have reported as its header expects, or ``give_up_seconds`` after its beginning by
the watermark with those that have: incomplete.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from detector.analysis.assembly import HEADER, assembled
from detector.analysis.verdicts import FOUND, verdicts_on
from detector.archive.schema import REPORTS
from detector.core.predicate import Predicate

Wholes = NDArray[np.int64]
RESULT = pa.schema([*FOUND, ("left_out_path", pa.string()), ("left_out_reason", pa.string())])
"""Rows of ``verdicts`` with their findings; or, with all else null, a file that proved unreadable on the way, and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """When a snapshot counts as finished; ``watermark``: seconds, None before anything was seen."""

    watermark: float | None
    give_up_seconds: float
    headers_expected: bool


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Assembled:
    """``verdicts`` of the ``finished`` snapshots; the rows ``waiting``, of ``waits`` snapshots, the oldest of ``oldest``."""

    verdicts: pa.Table
    finished: tuple[int, ...]
    waiting: pa.Table
    waits: int
    oldest: float
    reports_newest: float | None
    headers_newest: float | None


def fragment_schema(columns: Sequence[str]) -> pa.Schema:
    """Rows of reports with these columns, and headers among them."""
    return pa.schema([*(REPORTS.field(name) for name in columns), pa.field("header", HEADER)])


def assemble(rows: pa.Table, predicates: Sequence[Predicate], patience: Patience) -> Assembled:
    """Finish what can be finished.

    Parameters
    ----------
    rows : reports, and headers (their ``process`` is null), of unfinished snapshots; in any order, some more than once.
    """
    rows = _once(rows)
    numbers = rows.column("snapshot").to_numpy()
    snapshots, at = np.unique(numbers, return_inverse=True)
    headers = rows.column("process").is_null().to_numpy()
    begun = pc.fill_null(rows.column("begun"), 0.0).to_numpy()
    began = np.full(len(snapshots), np.inf)
    np.minimum.at(began, at, begun)
    ready = _complete(rows, at, headers, len(snapshots), patience)
    if patience.watermark is not None:
        ready |= began + patience.give_up_seconds < patience.watermark
    done = ready[at]
    verdicts = FOUND.empty_table()
    if done.any():
        verdicts = verdicts_on(assembled(rows.filter(pa.array(done))), predicates, findings=True)
    return Assembled(
        verdicts=verdicts,
        finished=tuple(snapshots[ready].tolist()),
        waiting=rows.filter(pa.array(~done)),
        waits=int((~ready).sum()),
        oldest=float(began[~ready].min(initial=np.inf)),
        reports_newest=_newest(begun[~headers]),
        headers_newest=_newest(begun[headers]),
    )


def _once(rows: pa.Table) -> pa.Table:
    """Each process's report of a snapshot once, and each header."""
    processes = pc.dictionary_encode(rows.column("process"), null_encoding="encode").combine_chunks()
    codes = (processes.chunk(0) if isinstance(processes, pa.ChunkedArray) else processes).indices.to_numpy()
    numbers = rows.column("snapshot").to_numpy()
    order = np.lexsort((codes, numbers))
    again = (np.diff(numbers[order]) == 0) & (np.diff(codes[order]) == 0)
    if not again.any():
        return rows
    return rows.take(pa.array(np.sort(order[np.append(True, ~again)])))


def _complete(rows: pa.Table, at: Wholes, headers: NDArray[np.bool_], count: int, patience: Patience) -> NDArray[np.bool_]:
    """(S,) whether all are there that are expected."""
    reported = np.bincount(at[~headers], minlength=count)
    expected = np.zeros(count, np.int64)
    np.maximum.at(expected, at, rows.column("members").to_numpy())
    if headers.any():
        told = rows.filter(pa.array(headers)).column("header").combine_chunks()
        whole = told.chunk(0) if isinstance(told, pa.ChunkedArray) else told
        np.subtract.at(expected, at[headers], pc.fill_null(pc.list_value_length(whole.field("missing")), 0).to_numpy())
    complete: NDArray[np.bool_] = reported >= expected
    if patience.headers_expected:
        complete &= np.bincount(at[headers], minlength=count) > 0
    return complete


def _newest(begun: NDArray[np.float64]) -> float | None:
    return float(begun.max()) if len(begun) else None
