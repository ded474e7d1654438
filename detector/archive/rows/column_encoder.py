"""Encodes finished snapshots as columns of the archive, without Python objects per row, and reuses unchanged parts.

The result equals that of :mod:`detector.archive.rows.row_encoder` with ``Table.from_pylist``, which are the reference, and the
fallback if a number is out of a column's range.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from operator import attrgetter
from typing import Any

import numpy as np
import pyarrow as pa

from detector.archive.rows.local_state_rows import facts_row, seen_row
from detector.archive.rows.row_encoder import message_row, snapshot_row, state_row
from detector.archive.rows.schema import CALLER, FACTS, REPORTS, RESOLVED, SNAPSHOTS, WAITS
from detector.core.protocol.assembler import Assembled
from detector.graph.columns import NO_NUMBER, WaitColumns
from stilltrue.model import Facts, Message, ProcessId, ProcessName, process_of
from stilltrue.protocol.report import CallerTarget, CallTarget, PartyTarget, Report, ResourceTarget, Target

_LOCAL = (
    "service", "process", "incarnation", "next_number", "activity", "made", "served", "seen", "pools", "waits", "holds",
    "facts", "labels", "lost",
)  # fmt: skip
_CONTENT = attrgetter("process", "next_number", "activity", "lost")
_SHARED = attrgetter("made", "served", "seen", "pools", "waits", "holds", "facts", "labels")
_Columns = dict[str, pa.Array]


@dataclass(frozen=True, slots=True)
class _Reports:
    """The last reports encoded, in row order."""

    names: list[ProcessName]
    reports: dict[ProcessName, Report]
    columns: _Columns


@dataclass(frozen=True, slots=True)
class _Cached:
    """The last encoding of a value: ``of`` are the objects that it was made from."""

    of: tuple[object, ...]
    array: Any


class ColumnEncoder:
    """Encodes successive snapshots. Raises ``pa.ArrowException`` or ``OverflowError`` if a number is out of range."""

    def __init__(self, archive: str = "") -> None:
        """``archive``: the detector's id, or empty."""
        self._archive = archive or None
        self._reports: _Reports | None = None
        self._cache: dict[str, _Cached] = {}
        self._runs: tuple[tuple[ProcessName, int], ...] = ()

    def reports(self, assembled: Assembled) -> pa.Table:
        """Return the rows of ``reports``, by process."""
        snapshot, names = assembled.snapshot, sorted(assembled.reports)
        local = self._local(names, assembled.reports)
        of = (snapshot.waits, snapshot.in_transit, local["process"])
        resolved = self._cached("resolved", of, lambda: _resolved(snapshot.waits, names))
        in_transit = self._cached("sent", of, lambda: _sent(snapshot.in_transit, names))
        reports, count, ref = [assembled.reports[name] for name in names], len(names), snapshot.ref
        columns = local | {
            "snapshot": _repeated(ref.id, "snapshot", count),
            "begun": _repeated(ref.begun, "begun", count),
            "members": _repeated(ref.members, "members", count),
            "cut_for": pa.array([report.snapshot for report in reports], pa.int64()),
            "after": pa.array([report.after for report in reports], pa.int64()),
            "cut_at": pa.array([report.cut_at for report in reports], pa.float64()),
            "before": pa.nulls(count, RESOLVED),
            "archive": _repeated(self._archive, "archive", count),
            "resolved": resolved,
            "in_transit": in_transit,
        }
        return pa.table([columns[name] for name in REPORTS.names], schema=REPORTS)

    def snapshot(self, assembled: Assembled, members: Mapping[ProcessName, ProcessId]) -> pa.Table:
        """Return the row of ``snapshots``."""
        snapshot, reports = assembled.snapshot, assembled.reports
        runs = tuple((name, report.process.incarnation) for name, report in reports.items())
        if runs != self._runs:
            self._runs = runs
        large = {
            "waits": self._cached("waits", (snapshot.waits, self._runs), lambda: _waits(snapshot.waits, reports)),
            "processes": self._cached(
                "processes", (snapshot.processes,),
                lambda: _one([state_row(name, state) for name, state in snapshot.processes.items()], "processes"),
            ),
            "in_transit": self._cached(
                "in_transit", (snapshot.in_transit,),
                lambda: _one([message_row(message) for message in snapshot.in_transit], "in_transit"),
            ),
        }  # fmt: skip
        row = snapshot_row(assembled, members, large=False) | {"archive": self._archive}
        columns = [large[field.name] if field.name in large else pa.array([row[field.name]], field.type) for field in SNAPSHOTS]
        return pa.table(columns, schema=SNAPSHOTS)

    def _cached(self, name: str, of: tuple[object, ...], encode: Callable[[], pa.Array]) -> pa.Array:
        """Return the last encoding if it was made from the same objects ``of``, else encode anew."""
        last = self._cache.get(name)
        if last is None or len(last.of) != len(of) or any(a is not b for a, b in zip(last.of, of, strict=True)):
            last = self._cache[name] = _Cached(of, encode())
        return last.array

    def _local(self, names: list[ProcessName], reports: Mapping[ProcessName, Report]) -> _Columns:
        """Return the columns of the local states; those of unchanged reports are reused from the previous snapshot."""
        before = self._reports
        known = {} if before is None else before.reports
        changed = [name for name in names if name not in known or not _same(known[name], reports[name])]
        if before is not None and not changed and names == before.names:
            return before.columns
        if before is None or 2 * len(changed) > len(names):
            columns = _encoded([reports[name] for name in names])
        else:
            fresh = _encoded([reports[name] for name in changed])
            at = {name: index for index, name in enumerate(before.names)}
            at.update((name, len(before.names) + index) for index, name in enumerate(changed))
            order = pa.array([at[name] for name in names], pa.int64())
            columns = {name: pa.concat_arrays([before.columns[name], fresh[name]]).take(order) for name in _LOCAL}
        self._reports = _Reports(names, dict(reports), columns)
        return columns


def _same(one: Report, other: Report) -> bool:
    if one is other:
        return True
    shared = all(a is b for a, b in zip(_SHARED(one), _SHARED(other), strict=True))
    return shared and bool(_CONTENT(one) == _CONTENT(other))


def _repeated(value: object, column: str, count: int) -> pa.Array:
    return pa.array([value] * count, REPORTS.field(column).type)


def _encoded(reports: Sequence[Report]) -> _Columns:
    """Encode the local states of ``reports``, column by column."""

    def rows(name: str, of: Callable[[Report], object]) -> pa.Array:
        return pa.array([of(report) for report in reports], REPORTS.field(name).type)

    return {
        "service": rows("service", lambda report: report.process.service),
        "process": rows("process", lambda report: report.process.instance),
        "incarnation": rows("incarnation", lambda report: report.process.incarnation),
        "next_number": rows("next_number", lambda report: report.next_number),
        "activity": rows("activity", lambda report: report.activity.value),
        "made": _listed("made", [report.made for report in reports], servers=_servers, facts=_facts_of_each),
        "served": _listed("served", [report.served for report in reports], caller=_callers),
        "seen": rows("seen", lambda report: list(map(seen_row, report.seen))),
        "pools": _listed("pools", [report.pools for report in reports]),
        "waits": _listed("waits", [report.waits for report in reports], among=_targets),
        "holds": _listed("holds", [report.holds for report in reports]),
        "facts": _facts([report.facts for report in reports]),
        "labels": rows("labels", lambda report: list(report.labels.items())),
        "lost": rows("lost", lambda report: report.lost),
    }


_Leaf = Callable[[Sequence[Any]], pa.Array]


def _listed(column: str, lists: Sequence[Sequence[Any]], **others: _Leaf) -> pa.Array:
    """Encode lists of objects as lists of structs. ``others`` encode the fields that are not simply an attribute."""
    struct = REPORTS.field(column).type.value_type
    every = list(chain.from_iterable(lists))
    fields = [
        others[field.name](every) if field.name in others else pa.array(list(map(attrgetter(field.name), every)), field.type)
        for field in struct
    ]
    return _lists(lists, pa.StructArray.from_arrays(fields, fields=list(struct)), REPORTS.field(column).type)


def _lists(lists: Sequence[Any], values: pa.Array, kind: pa.DataType) -> pa.Array:
    offsets = pa.array(list(accumulate(map(len, lists), initial=0)), pa.int32())
    if pa.types.is_map(kind):
        keys, items = values.flatten()
        return pa.MapArray.from_arrays(offsets, keys, items, kind)
    return pa.ListArray.from_arrays(offsets, values, kind)


def _servers(calls: Sequence[Any]) -> pa.Array:
    servers = [call.servers for call in calls]
    kind = REPORTS.field("made").type.value_type.field("servers").type
    offsets = pa.array(list(accumulate(map(len, servers), initial=0)), pa.int32())
    keys = pa.array(list(chain.from_iterable(servers)), kind.key_type)
    items = pa.array(list(chain.from_iterable(each.values() for each in servers)), kind.item_type)
    return pa.MapArray.from_arrays(offsets, keys, items, kind)


def _facts_of_each(calls: Sequence[Any]) -> pa.Array:
    return _facts([call.facts for call in calls])


def _facts(facts: Sequence[Facts]) -> pa.Array:
    if any(facts):
        return pa.array([facts_row(each) for each in facts], FACTS)
    none = pa.array([0] * (len(facts) + 1), pa.int32())
    return pa.MapArray.from_arrays(none, pa.array([], FACTS.key_type), pa.array([], FACTS.item_type), FACTS)


def _callers(calls: Sequence[Any]) -> pa.Array:
    callers = [call.caller for call in calls]
    process = pa.array([None if caller is None else caller.process for caller in callers], CALLER.field("process").type)
    run = pa.array([None if caller is None else caller.incarnation for caller in callers], CALLER.field("incarnation").type)
    unknown = pa.array([caller is None for caller in callers], pa.bool_())
    return pa.StructArray.from_arrays([process, run], fields=list(CALLER), mask=unknown)


_KINDS = {"party": (PartyTarget, "party"), "call": (CallTarget, "number"), "resource": (ResourceTarget, "resource"),
          "served": (CallerTarget, "served")}  # fmt: skip
"""The class and attribute for each field of a target."""


def _targets(waits: Sequence[Any]) -> pa.Array:
    among = [wait.among for wait in waits]
    every: list[Target] = list(chain.from_iterable(among))
    kind = REPORTS.field("waits").type.value_type.field("among").type
    fields = []
    for field in kind.value_type:
        of, attribute = _KINDS[field.name]
        fields.append(pa.array([getattr(one, attribute) if isinstance(one, of) else None for one in every], field.type))
    return _lists(among, pa.StructArray.from_arrays(fields, fields=list(kind.value_type)), kind)


def _resolved(waits: WaitColumns, names: Sequence[ProcessName]) -> pa.Array:
    """Return each process's waits between parties."""
    place = {name: index for index, name in enumerate(names)}
    known = pa.array(list(waits.names), pa.string())
    process = [place.get(process_of(name), -1) for name in waits.names]
    owner = np.array(process, np.int64)[waits.waiter] if len(waits) else np.zeros(0, np.int64)
    order = np.argsort(owner, kind="stable")
    order = order[owner[order] >= 0]
    indptr = waits.indptr.astype(np.int32)
    among = pa.ListArray.from_arrays(pa.array(indptr), known.take(pa.array(waits.targets)))
    number = pa.array(waits.number, pa.int64(), mask=waits.number == NO_NUMBER)
    what = pa.array(list(waits.what), pa.string()) if waits.what else pa.array([""] * len(waits), pa.string())
    columns = {
        "waiter": known.take(pa.array(waits.waiter)),
        "needs": pa.array(waits.needs.astype(np.int32)),
        "among": among.cast(pa.list_(pa.string())),
        "deadline": _moments(waits.deadline),
        "since": _moments(waits.since),
        "number": number,
        "uncoloured": pa.array(waits.uncoloured),
        "what": what,
    }
    struct = pa.StructArray.from_arrays(
        [columns[field.name] for field in RESOLVED.value_type], fields=list(RESOLVED.value_type)
    )
    counts = np.bincount(owner[order], minlength=len(names)) if len(order) else np.zeros(len(names), np.int64)
    offsets = np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), struct.take(pa.array(order)), RESOLVED)


def _moments(values: Any) -> pa.Array:
    return pa.array(values, pa.float64(), mask=np.isnan(values))


def _sent(messages: Iterable[Message], names: Sequence[ProcessName]) -> pa.Array:
    """Return the messages in transit that each process sent."""
    sent: dict[ProcessName, list[Any]] = {}
    for message in messages:
        sent.setdefault(message.source, []).append(message_row(message))
    return pa.array([sent.get(name, []) for name in names], REPORTS.field("in_transit").type)


def _one(value: object, column: str) -> pa.Array:
    return pa.array([value], SNAPSHOTS.field(column).type)


def _waits(waits: WaitColumns, reports: Mapping[ProcessName, Report]) -> pa.Array:
    """Encode waits like :func:`~detector.archive.rows.row_encoder.waits_row`."""
    runs = {name: report.process.incarnation for name, report in reports.items()}
    of_party = [runs.get(process_of(name), 0) for name in waits.names] if reports else []
    incarnation = np.array(of_party, np.int64)[waits.waiter] if of_party else None
    fields: dict[str, pa.Array | None] = {
        "names": pa.array(list(waits.names), pa.string()),
        "waiter": pa.array(waits.waiter.astype(np.int32)),
        "needs": pa.array(waits.needs.astype(np.int32)),
        "sizes": pa.array(waits.sizes().astype(np.int32)),
        "targets": pa.array(waits.targets.astype(np.int32)),
        "deadline": _if_any(_moments(waits.deadline)),
        "since": _if_any(_moments(waits.since)),
        "number": _if_any(pa.array(waits.number, pa.int64(), mask=waits.number == NO_NUMBER)),
        "uncoloured": pa.array(waits.uncoloured) if waits.uncoloured.any() else None,
        "what": pa.array(list(waits.what), pa.string()) if waits.what else None,
        "incarnation": pa.array(incarnation, pa.int64()) if incarnation is not None else _empty_if(reports),
    }
    columns = [_single(fields[field.name], field.type) for field in WAITS]
    return pa.StructArray.from_arrays(columns, fields=list(WAITS))


def _empty_if(reports: Mapping[ProcessName, Report]) -> pa.Array | None:
    return pa.array([], pa.int64()) if reports else None


def _if_any(values: pa.Array) -> pa.Array | None:
    return values if len(values) > values.null_count else None


def _single(values: pa.Array | None, kind: pa.DataType) -> pa.Array:
    """Return a column with one list, or a null for None."""
    if values is None:
        return pa.nulls(1, kind)
    return pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values, kind)
