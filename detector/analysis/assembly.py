"""Reports in any order, some twice, some from afar, put together to rows of ``snapshots``: whole columns at a time.

Rules:

1. A process reports once for a snapshot: of several rows the first in the order of their columns counts, and all say the same.
2. A snapshot's header, where there is one, says who is missing. Without it, whoever is named as waited for and sent no
   report is missing; and if that is fewer than there are members too many, ``?1``, ``?2`` ... stand for the rest.
   Doubt delays a verdict, never makes one.
3. A process's waits are in their canonical order within its row (they were written so), and a waiter has all its waits in
   one row: a stable sort by waiter gives the canonical order of the snapshot's. Targets are different within a wait.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from detector.archive.list_columns import Whole, flattened, lengths, listed, whole
from detector.archive.schema import SNAPSHOTS, STATES, WAITS
from detector.core.assembler import Outcome
from stilltrue.model import PartyName, process_of

Names = Sequence[Sequence[str]]
WAIT_REPORT_COLUMNS = ("snapshot", "begun", "members", "process", "incarnation", "resolved", "before")
"""The columns of ``reports`` that predicates about waits need."""
STATE_REPORT_COLUMNS = ("service", "activity", "facts", "labels", "in_transit")
"""Those that the others need as well."""
HEADER = pa.struct([SNAPSHOTS.field(name) for name in ("scope", "ended", "begun_by", "outcome", "missing", "orphans")])
HEADER_COLUMNS = ("scope", "begun", "ended", "begun_by", "outcome", "members", "missing", "orphans")


def assembled(reports: pa.Table) -> pa.Table:
    """Put the reports of whole snapshots together.

    Parameters
    ----------
    reports : rows of ``reports`` (at least ``WAIT_REPORT_COLUMNS``) in any order; all those of each snapshot in it. A row
        whose ``process`` is null is its snapshot's header: its column ``header`` holds ``scope``, ``ended``, ``begun_by``,
        ``outcome``, ``missing`` and ``orphans``.

    Returns
    -------
    pyarrow.Table
        Rows of ``snapshots``, by snapshot. Columns that the reports at hand do not tell are null.
    """
    headers = _headers(reports)
    rows = _once(reports.filter(pc.is_valid(reports.column("process"))))
    numbers = rows.column("snapshot").to_numpy()
    snapshots = np.union1d(numbers, np.fromiter(headers, np.int64, len(headers)))
    at = np.searchsorted(snapshots, numbers)
    begins = np.searchsorted(numbers, np.append(snapshots, np.iinfo(np.int64).max))
    incarnations = rows.column("incarnation").to_numpy()
    waits, waited = _waits(rows.column("resolved"), at, len(snapshots), incarnations)
    previous, _ = _waits(rows.column("before"), at, len(snapshots), None)
    known = _known(rows, begins, snapshots, headers, waited)
    columns: dict[str, pa.Array] = {
        "snapshot": pa.array(snapshots, pa.int64()),
        "waits": waits,
        "previous": _only_where(previous, _any_valid(rows.column("before"), at, len(snapshots))),
    }
    columns |= {name: pa.array([row.get(name) for row in known], SNAPSHOTS.field(name).type) for name in HEADER_COLUMNS}
    if "activity" in rows.column_names:
        columns |= {"processes": _states(rows, begins), "in_transit": _messages(rows, begins)}
    return pa.table([columns.get(field.name, pa.nulls(len(snapshots), field.type)) for field in SNAPSHOTS], schema=SNAPSHOTS)


def header_rows(snapshots: pa.Table) -> pa.Table:
    """The headers of rows of ``snapshots``, to be put among their reports."""
    parts = [whole(snapshots.column(field.name)).cast(field.type) for field in HEADER]
    return pa.table(
        {
            **{name: snapshots.column(name) for name in ("snapshot", "begun", "members")},
            "process": pa.nulls(snapshots.num_rows, pa.string()),
            "header": pa.StructArray.from_arrays(parts, fields=list(HEADER)),
        }
    )


def _headers(reports: pa.Table) -> dict[int, dict[str, Any]]:
    if "header" not in reports.column_names:
        return {}
    rows = reports.filter(pc.is_null(reports.column("process"))).select(["snapshot", "begun", "members", "header"])
    return {
        row["snapshot"]: {"begun": row["begun"], "members": row["members"]} | (row["header"] or {}) for row in rows.to_pylist()
    }


def _once(rows: pa.Table) -> pa.Table:
    """Rule 1: sorted by snapshot and process, each once."""
    order = pc.sort_indices(rows, sort_keys=[("snapshot", "ascending"), ("process", "ascending")])
    keys = rows.select(["snapshot", "process"]).take(order)
    if len(order) < 2:
        return rows
    snapshot, process = keys.column("snapshot").combine_chunks(), keys.column("process").combine_chunks()
    again = pc.and_(pc.equal(snapshot[1:], snapshot[:-1]), pc.equal(process[1:], process[:-1]))
    fresh = pa.concat_arrays([pa.array([True]), pc.invert(whole(again))])
    return rows.take(whole(order).filter(fresh))


def _known(
    rows: pa.Table, begins: Whole, snapshots: Whole, headers: dict[int, dict[str, Any]], waited: Names
) -> list[dict[str, Any]]:
    """What the header says of each snapshot, or (rule 2) what its reports tell."""
    begun, members, processes = (rows.column(name) for name in ("begun", "members", "process"))
    known = []
    for at, (low, high) in enumerate(pairwise(begins.tolist())):
        header = headers.get(int(snapshots[at]))
        if header is not None and header.get("outcome") is not None:
            known.append(header)
            continue
        expected = members[low].as_py() if header is None else header["members"]
        missing = [] if high - low >= expected else _absent(processes[low:high].to_pylist(), waited[at], expected)
        outcome = Outcome.INCOMPLETE if missing else Outcome.COMPLETE
        known.append(
            {
                "scope": "all",
                "begun": begun[low].as_py() if header is None else header["begun"],
                "outcome": outcome.value,
                "members": expected,
                "missing": [{"service": "", "instance": name, "incarnation": 0} for name in missing],
                "orphans": [],
            }
        )
    return known


def _absent(reported: Sequence[str], waited: Sequence[str], members: int) -> list[str]:
    there = set(reported)
    absent = sorted({process_of(PartyName(name)) for name in waited} - there)
    unnamed = members - len(there) - len(absent)
    return absent + [f"?{number}" for number in range(1, unnamed + 1)]


def _waits(resolved: pa.ChunkedArray, at: Whole, count: int, incarnations: Whole | None) -> tuple[pa.Array, Names]:
    """Resolved waits as numbers over each snapshot's own names; the second answers which names a snapshot has."""
    rows, report = flattened(resolved)
    owner = at[report]
    among, sizes = rows.field("among").flatten(), lengths(rows.field("among"))
    names, parties, numbers = _named(rows.field("waiter"), among, np.concatenate((owner, np.repeat(owner, sizes))), count)
    waiter, targets = numbers[: len(owner)], numbers[len(owner) :]
    order = np.lexsort((waiter, owner))  # stable: rule 3
    per_snapshot = np.bincount(owner, minlength=count)
    begins = np.cumsum(sizes) - sizes
    moved = sizes[order]
    shift = np.repeat(begins[order] - (np.cumsum(moved) - moved), moved)
    lined = targets[shift + np.arange(len(targets))] - np.repeat(parties[owner[order]], moved)
    lined = lined[np.lexsort((lined, np.repeat(np.arange(len(order)), moved)))]
    taken = rows.take(pa.array(order))
    per_wait = {
        "waiter": (waiter - parties[owner])[order],
        "needs": taken.field("needs"),
        "sizes": moved,
        "deadline": taken.field("deadline"),
        "since": taken.field("since"),
        "number": taken.field("number"),
        "uncoloured": taken.field("uncoloured"),
        "what": taken.field("what"),
    }
    columns = {name: listed(values, per_snapshot, WAITS.field(name).type) for name, values in per_wait.items()}
    if incarnations is None:
        columns["incarnation"] = pa.nulls(count, WAITS.field("incarnation").type)
    else:
        told = incarnations[report][order]
        columns["incarnation"] = listed(told, per_snapshot, WAITS.field("incarnation").type)
    target_counts = np.bincount(owner, weights=sizes, minlength=count).astype(np.int64)
    columns["targets"] = listed(lined, target_counts, WAITS.field("targets").type)
    columns["names"] = listed(names, np.diff(parties), WAITS.field("names").type)
    return pa.StructArray.from_arrays([columns[field.name] for field in WAITS], fields=list(WAITS)), _Named(names, parties)


class _Named(Sequence[Sequence[str]]):
    """The names of each snapshot, read when asked for."""

    def __init__(self, names: pa.Array, parties: Whole) -> None:
        self._names = names
        self._parties = parties

    def __len__(self) -> int:
        return len(self._parties) - 1

    def __getitem__(self, at: Any) -> Any:
        return self._names[int(self._parties[at]) : int(self._parties[at + 1])].to_pylist()


def _named(waiters: pa.Array, among: pa.Array, owner: Whole, count: int) -> tuple[pa.Array, Whole, Whole]:
    """Names sorted within each snapshot, where each snapshot's begin, and the number of each waiter and target."""
    coded = whole(pc.dictionary_encode(pa.concat_arrays([waiters, among])))
    ordered = pc.array_sort_indices(coded.dictionary).to_numpy()
    rank = np.empty(len(ordered), np.int64)
    rank[ordered] = np.arange(len(ordered))
    width = max(len(ordered), 1)
    keys = owner * width + (rank[coded.indices.to_numpy(zero_copy_only=False)] if len(coded) else np.empty(0, np.int64))
    different, numbers = np.unique(keys, return_inverse=True)
    parties = np.searchsorted(different, np.arange(count + 1) * width)
    names = coded.dictionary.take(pa.array(ordered[different % width], pa.int64()))
    return names, parties, numbers.astype(np.int64)


def _only_where(lists: pa.Array, there: NDArray[np.bool_]) -> pa.Array:
    return pc.if_else(pa.array(there), lists, pa.scalar(None, lists.type))


def _any_valid(lists: pa.ChunkedArray, at: Whole, count: int) -> NDArray[np.bool_]:
    there = np.zeros(count, np.bool_)
    there[at[whole(lists).is_valid().to_numpy(zero_copy_only=False)]] = True
    return there


def _states(rows: pa.Table, begins: Whole) -> pa.Array:
    fields = list(STATES.value_type)
    parts = [whole(rows.column(field.name)).cast(field.type) for field in fields]
    return listed(pa.StructArray.from_arrays(parts, fields=fields), np.diff(begins), STATES)


def _messages(rows: pa.Table, begins: Whole) -> pa.Array:
    """All messages of a snapshot, by source and text: each source's are in their order in its own row."""
    flat, report = flattened(rows.column("in_transit"))
    at = np.repeat(np.arange(len(begins) - 1), np.diff(begins))[report]
    keys = pa.table({"at": at, "source": flat.field("source"), "what": flat.field("what"), "order": np.arange(len(flat))})
    order = keys.sort_by([(name, "ascending") for name in keys.column_names])
    counts = np.bincount(at, minlength=len(begins) - 1)
    return listed(flat.take(whole(order.column("order"))), counts, SNAPSHOTS.field("in_transit").type)
