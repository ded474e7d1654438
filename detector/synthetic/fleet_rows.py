"""Converts a synthetic fleet's calls to rows of ``reports``, a column at a time, equal to real agents' reports."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from detector.archive.rows.list_columns import listed
from detector.archive.rows.schema import REPORTS
from detector.core.waits.channels import MISSING_NAMED_MAX, reply_of_missing
from detector.synthetic.fleet_model import Calls, Fleet, Int64s, Served, Times, rank_in

NUMBER_NEXT = 10**12


class FleetRows:
    """The calls of several snapshots as rows of ``reports``."""

    def __init__(
        self, fleet: Fleet, first: int, begun: Times, served: Served, calls: Calls, missing: NDArray[np.bool_]
    ) -> None:
        self._fleet, self._first, self._begun = fleet, first, begun
        self._served, self._calls, self._missing = served, calls, missing
        self._width = len(fleet.names)
        self._names = pa.array(fleet.names)
        self._services = pa.array([name.rsplit("-", 1)[0] for name in fleet.names])
        self._served_key = served.at * self._width + served.process
        self._call_key = calls.at * self._width + calls.caller
        self._queued = rank_in(self._served_key) >= fleet.pools[served.process]
        methods = pa.array([f"/fleet.{name.rsplit('-', 1)[0]}/{method}" for name in fleet.names for method in fleet.methods])
        words = pa.array(list(fleet.methods))
        kind = served.tag % len(fleet.methods)
        self._served_method = methods.take(pa.array(served.process * len(fleet.methods) + kind))
        self._party = _concatenated(
            self._names.take(pa.array(served.process)), "/", words.take(pa.array(kind)), "#", _text(served.tag)
        )
        self._call_method = methods.take(pa.array(calls.callee * len(fleet.methods) + calls.number % len(fleet.methods)))
        self._waiter = self._party.take(pa.array(calls.by))
        self._server_of = np.full(len(calls.at), -1)
        stamped = served.call >= 0
        self._server_of[served.call[stamped]] = np.flatnonzero(stamped)

    def table(self) -> pa.Table:
        """Return the rows, without those of processes that did not report."""
        count = len(self._begun) * self._width
        at, process = np.divmod(np.arange(count), self._width)
        named = self._names.take(pa.array(process))
        columns: dict[str, Any] = {
            "snapshot": self._first + at,
            "begun": self._begun[at],
            "members": np.full(count, self._width),
            "service": self._services.take(pa.array(process)),
            "process": named,
            "incarnation": np.ones(count, np.int64),
            "cut_for": self._first + at,
            "after": self._first + at - 1,
            "cut_at": self._begun[at] + 0.001,
            "next_number": np.full(count, NUMBER_NEXT),
            "lost": np.zeros(count, np.int64),
            **self._activities(count),
            **self._made(count),
            **self._served_columns(count, process),
            **self._waits(count),
        }
        rows = pa.table([_column(columns.get(field.name), field, count) for field in REPORTS], schema=REPORTS)
        return rows.filter(pa.array(~self._missing.ravel())) if self._missing.any() else rows

    def _activities(self, count: int) -> dict[str, Any]:
        blocked = np.bincount(self._call_key, minlength=count) > 0
        busy = np.bincount(self._served_key, minlength=count) > 0
        return {"activity": np.where(blocked, "blocked", np.where(busy, "active", "idle"))}

    def _made(self, count: int) -> dict[str, Any]:
        calls = self._calls
        servers = pa.MapArray.from_arrays(
            np.arange(len(calls.at) + 1, dtype=np.int32),
            self._names.take(pa.array(calls.callee)),
            pa.array(np.ones(len(calls.at), np.int64)),
        )
        target = _concatenated("dns:///", self._names.take(pa.array(calls.callee)))
        fields = {
            "number": calls.number,
            "method": self._call_method,
            "target": target,
            "servers": servers,
            "strangers": np.zeros(len(calls.at), np.bool_),
            "party": self._waiter,
            "since": calls.since,
            "deadline": _nullable(calls.deadline),
            "sent": np.ones(len(calls.at), np.int64),
            "received": np.zeros(len(calls.at), np.int64),
            "doubtful": np.zeros(len(calls.at), np.bool_),
        }
        return {"made": _nested("made", fields, self._call_key, count), "in_transit": self._messages(count)}

    def _messages(self, count: int) -> pa.Array:
        """Return the messages in transit: replies, from the server's report, and requests, from the caller's."""
        calls = self._calls
        answered = np.flatnonzero((calls.where == 1) & ~self._missing[calls.at, calls.callee])
        asked = np.flatnonzero((calls.where == 2) | ((calls.where != 2) & self._missing[calls.at, calls.callee]))
        both = np.concatenate((answered, asked))
        source = np.concatenate((calls.callee[answered], calls.caller[asked]))
        words = pa.array(["reply to ", "request "]).take(pa.array(np.repeat([0, 1], [len(answered), len(asked)])))
        target = pa.concat_arrays([self._names.take(pa.array(calls.caller[answered])), pa.nulls(len(asked), pa.string())])
        silent = self._missing[calls.at[both], calls.caller[both]]  # without a report its messages are unknown
        kept = np.flatnonzero(~silent)
        rows = both[kept]
        fields = {
            "source": self._names.take(pa.array(source[kept])),
            "target": target.take(pa.array(kept)),
            "what": _concatenated(words.take(pa.array(kept)), self._call_method.take(pa.array(rows))),
        }
        return _nested("in_transit", fields, calls.at[rows] * self._width + source[kept], count)

    def _served_columns(self, count: int, process: Int64s) -> dict[str, Any]:
        served, calls = self._served, self._calls
        stamped = served.call >= 0
        call = np.where(stamped, served.call, 0)
        if not len(calls.at):
            call = np.zeros(0, np.int64)
        caller = pa.StructArray.from_arrays(
            [self._names.take(pa.array(calls.caller[call])), pa.array(np.ones(len(call), np.int64))],
            names=["process", "incarnation"],
            mask=pa.array(~stamped),
        )
        fields = {
            "party": self._party,
            "method": pc.if_else(pa.array(stamped), self._call_method.take(pa.array(call)), self._served_method),
            "caller": caller,
            "number": np.where(stamped, calls.number[call], 0),
            "serving": ~self._queued,
            "pool": pa.array(["workers"]).take(pa.array(np.zeros(len(call), np.int64))),
            "sent": np.zeros(len(call), np.int64),
            "received": np.ones(len(call), np.int64),
            "taken": np.ones(len(call), np.bool_),
            "since": np.where(stamped, calls.since[call] + 0.001, np.nan),
        }
        fields["since"] = _nullable(np.asarray(fields["since"]))
        queued = np.bincount(self._served_key[self._queued], minlength=count)
        pools = {
            "name": pa.array(["workers"]).take(pa.array(np.zeros(count, np.int64))),
            "size": self._fleet.pools[process],
            "queued": queued,
        }
        return {
            "served": _nested("served", fields, self._served_key, count),
            "pools": _nested("pools", pools, np.arange(count), count),
            "seen": self._seen(count),
        }

    def _seen(self, count: int) -> pa.Array:
        """Return an entry for each caller of a server: the highest call number, and the answered calls."""
        calls = self._calls
        known = np.flatnonzero(calls.where != 2)
        key = (calls.at[known] * self._width + calls.callee[known]) * self._width + calls.caller[known]
        order = known[np.lexsort((calls.number[known], key))]
        key = np.sort(key)
        last = np.flatnonzero(np.append(key[1:] != key[:-1], True)) if len(key) else np.empty(0, np.int64)
        group = np.cumsum(np.append(False, key[1:] != key[:-1])) if len(key) else np.empty(0, np.int64)
        answered = calls.where[order] == 1
        answers = {
            "number": calls.number[order][answered],
            "sent": np.zeros(answered.sum(), np.int64),
            "received": np.ones(answered.sum(), np.int64),
            "taken": np.ones(answered.sum(), np.bool_),
        }
        kind = REPORTS.field("seen").type.value_type.field("answered").type
        callers = self._names.take(pa.array(calls.caller[order][last]))
        fields = {
            "caller": pa.StructArray.from_arrays(
                [callers, pa.array(np.ones(len(last), np.int64))], names=["process", "incarnation"]
            ),
            "highest": calls.number[order][last],
            "forgotten": np.zeros(len(last), np.int64),
            "answered": listed(_struct(answers, kind.value_type), np.bincount(group[answered], minlength=len(last)), kind),
            "plain": pa.nulls(len(last), pa.list_(pa.int64())),
        }
        return _nested("seen", fields, key[last] // self._width, count)

    def _waits(self, count: int) -> dict[str, Any]:
        calls = self._calls
        target = _struct({"call": calls.number}, REPORTS.field("waits").type.value_type.field("among").type.value_type)
        one = np.ones(len(calls.at), np.int64)
        common = {"waiter": self._waiter, "number": calls.number, "since": calls.since, "deadline": _nullable(calls.deadline)}
        common |= {"uncoloured": np.zeros(len(calls.at), np.bool_), "needs": one}
        kind = REPORTS.field("waits").type.value_type.field("among").type
        fields = common | {"among": listed(target, one, kind), "what": pa.array([""]).take(pa.array(one * 0))}
        return {"waits": _nested("waits", fields, self._call_key, count), "resolved": self._resolved(common, count)}

    def _resolved(self, common: dict[str, Any], count: int) -> pa.Array:
        """Return the waits as the assembler would resolve them; a test compares the two."""
        calls = self._calls
        missing = self._missing[calls.at, calls.callee]
        row = np.maximum(self._server_of, 0)
        at_server = (calls.where == 0) & ~missing
        queued = at_server & self._queued[row] if len(self._queued) else at_server
        unseen = missing | (calls.where == 2)  # perhaps at a member that did not report, if there is one
        order = np.argsort(self._served_key, kind="stable")
        workers = order[~self._queued[order]]
        begins = np.searchsorted(self._served_key[workers], np.arange(count + 1))
        place = calls.at * self._width + calls.callee
        busy = begins[place + 1] - begins[place]
        absent = np.minimum(self._missing.sum(axis=1)[calls.at], MISSING_NAMED_MAX)
        sizes = np.where(unseen, absent, np.where(queued, busy, at_server.astype(np.int64)))
        offset = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        wait = np.repeat(np.arange(len(sizes)), sizes)
        worker = workers[np.minimum(begins[place[wait]] + offset, max(len(workers) - 1, 0))] if len(workers) else wait * 0
        party = np.where(queued[wait], worker, row[wait])
        among = pc.if_else(
            pa.array(unseen[wait]), self._absent_names(calls.at[wait], offset), self._party.take(pa.array(party))
        )
        full = np.bincount(self._served_key[self._queued], minlength=count)[place]
        callee = self._names.take(pa.array(calls.callee))
        size = _text(self._fleet.pools[calls.callee])
        shown = ("'s pool workers (", _text(busy), " of ", size, " busy, ", _text(full), " queued)")
        pool = _concatenated("a worker for ", self._call_method, " in ", callee, *shown)
        worded = pc.if_else(pa.array(queued), pool, _concatenated("the reply of ", callee, " to ", self._call_method))
        unknown = pa.array(
            [
                reply_of_missing(sorted(self._fleet.names[at] for at in np.flatnonzero(missing).tolist()))
                for missing in self._missing
            ]
        )
        what = pc.if_else(pa.array(unseen), unknown.take(pa.array(calls.at)), worded)
        kept = np.flatnonzero(sizes > 0)
        fields = {name: _take(values, kept) for name, values in (common | {"what": what}).items()}
        kind = REPORTS.field("resolved").type.value_type.field("among").type
        fields["among"] = listed(among, sizes[kept], kind)
        return _nested("resolved", fields, self._call_key[kept], count)

    def _absent_names(self, at: Int64s, which: Int64s) -> pa.Array:
        """Return the name of the ``which``-th process, by name, that did not report in each snapshot ``at``."""
        order = np.argsort(np.asarray(self._fleet.names))
        snapshot, rank = np.nonzero(self._missing[:, order])
        begins = np.searchsorted(snapshot, np.arange(len(self._missing)))
        place = np.minimum(begins[at] + which, max(len(rank) - 1, 0))
        return self._names.take(pa.array(order[rank[place]] if len(rank) else at * 0))


def _text(numbers: Int64s) -> pa.Array:
    return pc.cast(pa.array(numbers), pa.string())


def _concatenated(*parts: pa.Array | str) -> pa.Array:
    return pc.binary_join_element_wise(*parts, "")


def _nullable(values: NDArray[np.float64]) -> pa.Array:
    return pa.array(values, pa.float64(), from_pandas=True)


def _take(values: Any, rows: Int64s) -> Any:
    return values.take(pa.array(rows)) if isinstance(values, pa.Array) else values[rows]


def _struct(fields: dict[str, Any], kind: pa.DataType) -> pa.Array:
    count = len(next(iter(fields.values())))
    return pa.StructArray.from_arrays([_column(fields.get(field.name), field, count) for field in kind], fields=list(kind))


def _column(values: Any, field: pa.Field, count: int) -> pa.Array:
    """Return a column of the field's type; without values, empty lists and maps, or else nulls."""
    if values is None:
        empty = pa.types.is_list(field.type) or pa.types.is_map(field.type)
        if not count or not empty or field.name == "before":
            return pa.nulls(count, field.type)
        return _empty(field.type, count)
    array = values if isinstance(values, pa.Array) else pa.array(values)
    return array if array.type == field.type else array.cast(field.type)


def _empty(kind: pa.DataType, count: int) -> pa.Array:
    """Return ``count`` empty lists or maps."""
    offsets = pa.array(np.zeros(count + 1, np.int32))
    if pa.types.is_map(kind):
        return pa.MapArray.from_arrays(offsets, pa.array([], kind.key_type), pa.array([], kind.item_type), type=kind)
    return pa.ListArray.from_arrays(offsets, pa.array([], kind.value_type), type=kind)


def _nested(column: str, fields: dict[str, Any], key: Int64s, count: int) -> pa.Array:
    """Return a list of structs for each report, from columns in any order; ``key`` is the report of each row."""
    kind = REPORTS.field(column).type
    order = np.argsort(key, kind="stable")
    return listed(_struct(fields, kind.value_type).take(pa.array(order)), np.bincount(key, minlength=count), kind)
