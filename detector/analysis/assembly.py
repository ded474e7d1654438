"""Assembles reports, in any order and possibly duplicated, into rows of ``snapshots``, whole columns at a time.

Rules:

1. A process reports once per snapshot. Duplicate rows are identical, so the first one counts.
2. Missing members are expected members that did not report. The snapshot's header, if there is one, names the expected
   members and those that were missing when the detector evaluated it. Without a header, a process that is waited for but sent
   no report is missing. Members that cannot be named are called ``?1``, ``?2`` and so on. Doubt delays a verdict, never makes
   one: if reports that the detector may have had are absent, no answer is FALSE. Only the header lists the forgetful members
   and the processes whose idleness is in doubt, so without a header no answer relies on either list.
3. The waits in a row are stored in canonical order, and all waits of one waiter are in one row, so a stable sort by waiter
   puts a snapshot's waits in canonical order. The targets of a wait are distinct.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from detector.archive.deduplicate import ambiguity_text, ambiguous, by_archive, deduplicated
from detector.archive.files import ArchiveError
from detector.archive.rows.list_columns import Int64s, combined, flattened, lengths, listed
from detector.archive.rows.schema import SNAPSHOTS, STATES, WAITS
from detector.core.protocol.assembler import Outcome
from stilltrue.model import PartyName, process_of

Names = Sequence[Sequence[str]]
WAIT_REPORT_COLUMNS = ("archive", "snapshot", "begun", "members", "process", "incarnation", "resolved")
"""The columns of ``reports`` that predicates about waits need."""
STATE_REPORT_COLUMNS = ("service", "activity", "facts", "labels", "in_transit")
"""The columns that other predicates need as well."""
HEADER = pa.struct(
    [
        *(
            SNAPSHOTS.field(name)
            for name in ("scope", "ended", "begun_by", "outcome", "missing", "orphans", "forgetful", "doubts", "membership")
        ),
        ("expected", pa.list_(pa.string())),
    ]
)
"""A snapshot's header, from its row of ``snapshots``; ``expected`` names the processes whose reports were evaluated."""
ASSEMBLED = pa.schema([*SNAPSHOTS, ("absent", pa.list_(pa.string())), ("headless", pa.bool_())])
"""Rows of ``snapshots``. ``absent`` names the missing members whose reports the detector may have had; ``headless`` is true if
the header is absent, too."""
HEADER_SOURCE = pa.schema(
    [
        *(SNAPSHOTS.field(name) for name in ("archive", "snapshot", "begun", "members")),
        *(field for field in HEADER if field.name != "expected"),
        ("processes", pa.list_(pa.struct([("process", pa.string())]))),
    ]
)
"""The columns of ``snapshots``, with their nested fields, from which a header is built."""
HEADER_COLUMNS = ("begun", "members", *(field.name for field in HEADER if field.name != "expected"))


def assembled(reports: pa.Table) -> pa.Table:
    """Assemble complete snapshots from their reports.

    Parameters
    ----------
    reports : all rows of ``reports`` (at least ``WAIT_REPORT_COLUMNS``) of each snapshot, in any order. A row whose
        ``process`` is null is the snapshot's header, in its column ``header`` (of type :data:`HEADER`).

    Returns
    -------
    pyarrow.Table
        Rows of ``ASSEMBLED``, by archive and snapshot. Columns that ``reports`` does not have are null.

    Raises
    ------
    ArchiveError
        If detectors without an id have numbered different snapshots alike, so that their reports cannot be told apart.
    """
    if (both := ambiguous(reports)).any():
        raise ArchiveError(ambiguity_text(pc.unique(reports.column("snapshot").filter(pa.array(both))).to_pylist()))
    return pa.concat_tables([_assembled(archive, rows) for archive, rows in by_archive(reports)])


def _assembled(archive: str, reports: pa.Table) -> pa.Table:
    rows, headers = split(reports)
    numbers = rows.column("snapshot").to_numpy()
    snapshots = np.union1d(numbers, headers.column("snapshot").to_numpy())
    at = np.searchsorted(snapshots, numbers)
    begins = np.searchsorted(numbers, np.append(snapshots, np.iinfo(np.int64).max))
    incarnations = rows.column("incarnation").to_numpy()
    waits, waited = _waits(rows.column("resolved"), at, len(snapshots), incarnations)
    known = _known(rows, begins, snapshots, headers, waited)
    columns: dict[str, pa.Array] = {
        "snapshot": pa.array(snapshots, pa.int64()),
        "waits": waits,
        "archive": pa.array([archive or None] * len(snapshots), pa.string()),
    }
    columns |= {name: pa.array([row.get(name) for row in known], SNAPSHOTS.field(name).type) for name in HEADER_COLUMNS}
    if "activity" in rows.column_names:
        columns |= {"processes": _states(rows, begins), "in_transit": _messages(rows, begins)}
    columns["absent"] = pa.array([row["absent"] for row in known], ASSEMBLED.field("absent").type)
    columns["headless"] = pa.array(~np.isin(snapshots, headers.column("snapshot").to_numpy()), pa.bool_())
    return pa.table([columns.get(field.name, pa.nulls(len(snapshots), field.type)) for field in ASSEMBLED], schema=ASSEMBLED)


def header_rows(snapshots: pa.Table) -> pa.Table:
    """Convert rows of ``snapshots`` (at least ``HEADER_SOURCE``) to header rows for :func:`assembled`."""
    states, by = flattened(snapshots.column("processes"))
    names = listed(states.field("process"), np.bincount(by, minlength=snapshots.num_rows), HEADER.field("expected").type)
    parts = [names if field.name == "expected" else combined(snapshots.column(field.name)).cast(field.type) for field in HEADER]
    return pa.table(
        {
            **{name: snapshots.column(name) for name in ("archive", "snapshot", "begun", "members")},
            "process": pa.nulls(snapshots.num_rows, pa.string()),
            "header": pa.StructArray.from_arrays(parts, fields=list(HEADER)),
        }
    )


def split(reports: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Separate reports from headers; sort both by snapshot and process and drop duplicates (rule 1)."""
    rows = deduplicated(reports)
    headers = rows.column("process").is_null()
    if "header" not in rows.column_names:
        rows = rows.append_column("header", pa.nulls(rows.num_rows, HEADER))
    return rows.filter(pc.invert(headers)), rows.filter(headers)


@dataclass(frozen=True, slots=True, eq=False)
class Attendance:
    """The members of S snapshots that did not report: ``names`` by snapshot, ``unnamed`` (S,) counts those without a name."""

    names: dict[int, list[str]]
    unnamed: Int64s

    def complete(self) -> NDArray[np.bool_]:
        """(S,) whether the reports of all members that the detector evaluated are there."""
        complete = self.unnamed <= 0
        complete[list(self.names)] = False
        return complete


def attendance(snapshots: Int64s, reports: pa.Table, headers: pa.Table) -> Attendance:
    """Apply rule 2 to snapshots (S,) of one archive: find the expected members that neither reported nor are listed missing."""
    header = combined(headers.column("header"))
    expected, of_expected = flattened(header.field("expected"))
    missing, of_missing = flattened(header.field("missing"))
    coded = combined(
        pc.dictionary_encode(
            pa.concat_arrays([combined(reports.column("process")).cast(pa.string()), missing.field("instance"), expected])
        )
    )
    width = max(len(coded.dictionary), 1)
    own = np.searchsorted(snapshots, headers.column("snapshot").to_numpy())
    reported = np.searchsorted(snapshots, reports.column("snapshot").to_numpy())
    owner = np.concatenate((reported, own[of_missing], own[of_expected]))
    keys = owner * width + coded.indices.to_numpy(zero_copy_only=False)
    accounted = np.unique(keys[: len(keys) - len(expected)])
    absent = np.setdiff1d(keys[len(keys) - len(expected) :], accounted)
    names: dict[int, list[str]] = {}
    for at, name in zip((absent // width).tolist(), coded.dictionary.take(pa.array(absent % width)).to_pylist(), strict=True):
        names.setdefault(at, []).append(name)
    members = np.zeros(len(snapshots), np.int64)
    for rows in (reports, headers):
        places = np.searchsorted(snapshots, rows.column("snapshot").to_numpy())
        np.maximum.at(members, places, pc.fill_null(rows.column("members"), 0).to_numpy())
    known = np.bincount(np.concatenate((accounted, absent)) // width, minlength=len(snapshots))
    return Attendance(names, members - known)


def _known(rows: pa.Table, begins: Int64s, snapshots: Int64s, headers: pa.Table, waited: Names) -> list[dict[str, Any]]:
    """Return each snapshot's header, or what its reports show instead, with its missing members (rule 2)."""
    begun, members, processes = (rows.column(name) for name in ("begun", "members", "process"))
    absences = attendance(snapshots, rows, headers)
    by_number = {row["snapshot"]: row for row in headers.select(["snapshot", "begun", "members", "header"]).to_pylist()}
    known = []
    for at, (low, high) in enumerate(pairwise(begins.tolist())):
        row = by_number.get(int(snapshots[at]), {})
        header = row.get("header") or {}
        absent, unnamed = sorted(absences.names.get(at, ())), int(absences.unnamed[at])
        if unnamed > 0:
            listed_missing = (each["instance"] for each in header.get("missing") or ())
            absent += _guessed_names({*processes[low:high].to_pylist(), *absent, *listed_missing}, waited[at], unnamed)
        missing = [*(header.get("missing") or ()), *({"service": "", "instance": name, "incarnation": 0} for name in absent)]
        outcome = (Outcome.INCOMPLETE if missing else Outcome.COMPLETE).value
        if not absent or header.get("outcome") == Outcome.REJECTED.value:
            outcome = header.get("outcome") or outcome
        known.append(
            {"scope": "all", "orphans": []}
            | header
            | {
                "begun": row["begun"] if row else begun[low].as_py(),
                "members": row["members"] if row else members[low].as_py(),
                "outcome": outcome,
                "absent": absent or None,
                "missing": sorted(missing, key=lambda each: str(each["instance"])),
            }
        )
    return known


def _guessed_names(known: set[str], waited: Sequence[str], count: int) -> list[str]:
    """Name ``count`` members that did not report: unknown processes that are waited for, then ``?1``, ``?2`` and so on."""
    absent = sorted({process_of(PartyName(name)) for name in waited} - known)
    return [*absent, *(f"?{number}" for number in range(1, count - len(absent) + 1))]


def _waits(resolved: pa.ChunkedArray, at: Int64s, count: int, incarnations: Int64s) -> tuple[pa.Array, Names]:
    """Return resolved waits with parties numbered within each snapshot, and the party names of each snapshot."""
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
    columns["incarnation"] = listed(incarnations[report][order], per_snapshot, WAITS.field("incarnation").type)
    target_counts = np.bincount(owner, weights=sizes, minlength=count).astype(np.int64)
    columns["targets"] = listed(lined, target_counts, WAITS.field("targets").type)
    columns["names"] = listed(names, np.diff(parties), WAITS.field("names").type)
    return pa.StructArray.from_arrays([columns[field.name] for field in WAITS], fields=list(WAITS)), _Named(names, parties)


class _Named(Sequence[Sequence[str]]):
    """The party names of each snapshot, read on access."""

    def __init__(self, names: pa.Array, parties: Int64s) -> None:
        self._names = names
        self._parties = parties

    def __len__(self) -> int:
        return len(self._parties) - 1

    def __getitem__(self, at: Any) -> Any:
        return self._names[int(self._parties[at]) : int(self._parties[at + 1])].to_pylist()


def _named(waiters: pa.Array, among: pa.Array, owner: Int64s, count: int) -> tuple[pa.Array, Int64s, Int64s]:
    """Return the names sorted within each snapshot, each snapshot's offset in them, and each waiter's and target's number."""
    coded = combined(pc.dictionary_encode(pa.concat_arrays([waiters, among])))
    ordered = pc.array_sort_indices(coded.dictionary).to_numpy()
    rank = np.empty(len(ordered), np.int64)
    rank[ordered] = np.arange(len(ordered))
    width = max(len(ordered), 1)
    keys = owner * width + (rank[coded.indices.to_numpy(zero_copy_only=False)] if len(coded) else np.empty(0, np.int64))
    different, numbers = np.unique(keys, return_inverse=True)
    parties = np.searchsorted(different, np.arange(count + 1) * width)
    names = coded.dictionary.take(pa.array(ordered[different % width], pa.int64()))
    return names, parties, numbers.astype(np.int64)


def _states(rows: pa.Table, begins: Int64s) -> pa.Array:
    fields = list(STATES.value_type)
    parts = [combined(rows.column(field.name)).cast(field.type) for field in fields]
    return listed(pa.StructArray.from_arrays(parts, fields=fields), np.diff(begins), STATES)


def _messages(rows: pa.Table, begins: Int64s) -> pa.Array:
    """Return each snapshot's messages by source and text; equal ones keep the order of their source's row."""
    flat, report = flattened(rows.column("in_transit"))
    at = np.repeat(np.arange(len(begins) - 1), np.diff(begins))[report]
    keys = pa.table({"at": at, "source": flat.field("source"), "what": flat.field("what"), "order": np.arange(len(flat))})
    order = keys.sort_by([(name, "ascending") for name in keys.column_names])
    counts = np.bincount(at, minlength=len(begins) - 1)
    return listed(flat.take(combined(order.column("order"))), counts, SNAPSHOTS.field("in_transit").type)
