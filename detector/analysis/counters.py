"""Counts over the reports of an archive, taken a few complete snapshots at a time: columns in, a few rows out.

:func:`merged` combines tallies in any order and grouping with the same result: all measures are integer sums or maxima, so
rounding does not depend on the order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from detector.analysis.groups import EncodedTexts, Groups, Real, encode, occurrences
from detector.archive.deduplicate import by_archive
from detector.archive.rows.list_columns import Int64s, combined, flattened
from detector.archive.rows.schema import BOOL, CALLER, FLOAT64, INT32, INT64, STRING, listed

Truths = NDArray[np.bool_]
MICROSECONDS = 1_000_000


TALLIED = pa.schema(
    [
        ("archive", STRING),
        ("snapshot", INT64),
        ("begun", FLOAT64),
        ("service", STRING),
        ("process", STRING),
        ("incarnation", INT64),
        ("cut_at", FLOAT64),
        ("next_number", INT64),
        ("made", listed(number=INT64, servers=pa.map_(STRING, INT64), party=STRING, doubtful=BOOL)),
        ("served", listed(party=STRING, caller=CALLER, number=INT64, serving=BOOL, pool=STRING)),
        ("seen", listed(caller=CALLER, highest=INT64)),
        ("pools", listed(name=STRING, size=INT32, queued=INT32)),
        ("waits", listed(among=listed(resource=STRING))),
        ("resolved", listed(waiter=STRING, since=FLOAT64)),
    ]
)
"""The columns of ``reports`` that are read: a third of its bytes."""

KEYS = ("kind", "one", "two", "archive", "snapshot")
SUMS = ("samples", "busy_sum", "queued_sum", "full_sum", "sized_sum", "delay_sum")
MAXIMA = ("size_max", "busy_max", "queued_max", "incarnation_max", "highest_max", "next_number_max")
FLOAT_MAXIMA = ("waited_max", "ahead_max", "behind_max")
TALLY = pa.schema(
    [
        *((name, STRING) for name in KEYS[:4]),
        ("snapshot", INT64),
        *((name, INT64) for name in (*SUMS, *MAXIMA)),
        *((name, FLOAT64) for name in FLOAT_MAXIMA),
    ]
)
"""A row per kind and key; columns that a kind does not measure are null.

========= ===================== ==========================================================================
kind      one, two              measures
========= ===================== ==========================================================================
blocked   service, method       samples of waits; the longest (``waited_max``, seconds)
pool      service, pool         busy workers, queued calls, how often none was free (of ``sized_sum`` bounded)
lock      resource              samples of waits for it
holding   service, process      calls made by parties that occupy a worker, by the process whose own report has them; if
                                none has, by each process that has answered on the channel
process   process, service      reports
clock     process               how far its cuts lay outside the snapshot, after its end or before its beginning, at most
                                (seconds); their summed delay (``delay_sum``, microseconds)
headless                        reports of ``snapshot``, which has no row in ``snapshots``
orphan    server, process       in ``snapshot`` the server had seen call ``highest_max`` of a caller whose next call
                                was to be ``next_number_max``
========= ===================== ==========================================================================
"""


DAY = "day"
DAILY = pa.schema([*TALLY, (DAY, STRING)])
"""A tally per day of the archive."""


@dataclass(frozen=True, slots=True, eq=False)
class SnapshotTimes:
    """When each snapshot began and ended: (S,) each, sorted by ``snapshot``; NaN if unknown."""

    snapshot: Int64s
    begun: Real
    ended: Real


NO_TIMES = SnapshotTimes(np.empty(0, np.int64), np.empty(0), np.empty(0))


def tallied(reports: pa.Table, ends: Mapping[str, SnapshotTimes]) -> pa.Table:
    """Tally the reports of complete snapshots (with the columns of ``TALLIED``); ``ends`` by archive."""
    if not reports.num_rows:
        return TALLY.empty_table()
    return merged([_Counting(rows, ends.get(name, NO_TIMES), name).table() for name, rows in by_archive(reports)])


def merged(tallies: Iterable[pa.Table], schema: pa.Schema = TALLY) -> pa.Table:
    """Merge tallies of one ``schema``, ``TALLY`` or ``DAILY``."""
    together = pa.concat_tables([schema.empty_table(), *tallies])
    keys = [name for name in schema.names if name in {*KEYS, DAY}]
    found = together.group_by(keys, use_threads=False).aggregate(
        [*((name, "sum") for name in SUMS), *((name, "max") for name in (*MAXIMA, *FLOAT_MAXIMA))]
    )
    source = {name: name for name in keys} | {name: f"{name}_sum" for name in SUMS}
    source |= {name: f"{name}_max" for name in (*MAXIMA, *FLOAT_MAXIMA)}
    return pa.table([found.column(source[field.name]).cast(field.type) for field in schema], schema=schema)


class _Counting:
    """Computes each kind of a tally, and shares the columns that several kinds need."""

    def __init__(self, reports: pa.Table, ends: SnapshotTimes, archive: str) -> None:
        self._archive = archive
        self._reports = reports
        self._ends = ends
        self._snapshot = reports.column("snapshot").to_numpy()
        self._place, _ = encode(self._snapshot)
        self._services = EncodedTexts(reports.column("service"))
        self._processes = EncodedTexts(reports.column("process"))
        self._served, self._served_by = flattened(reports.column("served"))
        serving = pc.fill_null(self._served.field("serving"), False).to_numpy(zero_copy_only=False)
        self._busy = np.flatnonzero(serving)

    def table(self) -> pa.Table:
        """Return the tally with all kinds."""
        kinds = (
            self._blocked,
            self._pools,
            self._locks,
            self._holding,
            self._members,
            self._clocks,
            self._headless,
            self._orphans,
        )
        return pa.concat_tables([kind() for kind in kinds])

    def _blocked(self) -> pa.Table:
        waits, by = flattened(self._reports.column("resolved"))
        methods = EncodedTexts(pc.struct_field(pc.extract_regex(waits.field("waiter"), r"/(?P<method>[^#@~]*)"), "method"), "")
        begun = self._reports.column("begun").to_numpy()
        waited = begun[by] - waits.field("since").to_numpy(zero_copy_only=False)
        groups = Groups(self._services.codes[by], methods.codes)
        return _rows(
            "blocked",
            one=self._services.texts(groups.one),
            two=methods.texts(groups.two),
            samples=groups.counts(),
            waited_max=groups.maxima(waited),
        )

    def _pools(self) -> pa.Table:
        pools, by = flattened(self._reports.column("pools"))
        words = EncodedTexts(pa.concat_arrays([pools.field("name"), self._served.field("pool")]))
        named, used = words.codes[: len(pools)], words.codes[len(pools) :]
        taken = np.sort(self._served_by[self._busy] * words.count + used[self._busy])
        busy = occurrences(by * words.count + named, taken)
        size = pools.field("size")
        bounded = size.is_valid().to_numpy(zero_copy_only=False)
        sizes = pc.fill_null(size, 0).to_numpy(zero_copy_only=False).astype(np.int64)
        queued = pc.fill_null(pools.field("queued"), 0).to_numpy(zero_copy_only=False).astype(np.int64)
        groups = Groups(self._services.codes[by], named)
        sized = groups.sums(bounded)
        return _rows(
            "pool",
            one=self._services.texts(groups.one),
            two=words.texts(groups.two),
            samples=groups.counts(),
            busy_sum=groups.sums(busy),
            queued_sum=groups.sums(queued),
            full_sum=groups.sums(bounded & (busy >= sizes)),
            sized_sum=sized,
            size_max=pa.array(groups.maxima(sizes.astype(np.float64)), mask=sized == 0).cast(INT64),
            busy_max=groups.maxima(busy.astype(np.float64)),
            queued_max=groups.maxima(queued.astype(np.float64)),
        )

    def _locks(self) -> pa.Table:
        waits, _ = flattened(self._reports.column("waits"))
        among, _ = flattened(waits.field("among"))
        resources = EncodedTexts(among.field("resource").drop_null())
        groups = Groups(resources.codes, np.zeros_like(resources.codes))
        return _rows("lock", one=resources.texts(groups.one), samples=groups.counts())

    def _holding(self) -> pa.Table:
        made, by = flattened(self._reports.column("made"))
        pooled = pc.fill_null(pc.not_equal(self._served.field("pool"), ""), False).to_numpy(zero_copy_only=False)
        busy = self._busy[pooled[self._busy]]
        parties = EncodedTexts(pa.concat_arrays([made.field("party"), self._served.field("party").take(pa.array(busy))]))
        caller, occupying = parties.codes[: len(made)], parties.codes[len(made) :]
        doubtful = pc.fill_null(made.field("doubtful"), True).to_numpy(zero_copy_only=False)
        holds = occurrences(by * parties.count + caller, np.sort(self._served_by[busy] * parties.count + occupying)) > 0
        holds &= ~doubtful
        calls = np.flatnonzero(holds)
        by = by[calls]
        located, servers = self._servers_of(by, _numbers(made, calls))
        unlocated = np.ones(len(calls), np.bool_)
        unlocated[located] = False
        elsewhere = np.flatnonzero(unlocated)
        answered, of = flattened(made.field("servers").take(pa.array(calls[elsewhere])))
        processes = combined(self._reports.column("process")).take(pa.array(servers))
        callees = EncodedTexts(pa.concat_arrays([processes, answered.field("key")]))
        groups = Groups(self._services.codes[by[np.concatenate([located, elsewhere[of]])]], callees.codes)
        return _rows("holding", one=self._services.texts(groups.one), two=callees.texts(groups.two), samples=groups.counts())

    def _servers_of(self, by: Int64s, numbers: Int64s) -> tuple[Int64s, Int64s]:
        """Find calls in their servers' reports.

        Parameters
        ----------
        by, numbers : (C,) the report of each call's caller, and the call's number.

        Returns
        -------
        The calls that were found, and the report of each one's server.
        """
        sender, known = self._senders(self._served.field("caller"), self._served_by)
        makes = np.zeros(len(self._snapshot), np.bool_)
        makes[by] = True
        served = np.flatnonzero(known & makes[sender])
        codes, count = encode(np.concatenate([numbers, _numbers(self._served, served)]))
        made_keys, served_keys = by * count + codes[: len(by)], sender[served] * count + codes[len(by) :]
        order = np.argsort(made_keys, kind="stable")
        place = np.minimum(np.searchsorted(made_keys[order], served_keys), max(len(made_keys) - 1, 0))
        found = np.flatnonzero(made_keys[order][place] == served_keys) if len(made_keys) else place[:0]
        return order[place[found]], self._served_by[served[found]]

    def _members(self) -> pa.Table:
        groups = Groups(self._processes.codes, self._services.codes)
        return _rows(
            "process",
            one=self._processes.texts(groups.one),
            two=self._services.texts(groups.two),
            samples=groups.counts(),
        )

    def _clocks(self) -> pa.Table:
        place = np.minimum(np.searchsorted(self._ends.snapshot, self._snapshot), max(len(self._ends.snapshot) - 1, 0))
        known = np.flatnonzero(self._ends.snapshot[place] == self._snapshot) if len(self._ends.snapshot) else place[:0]
        begun, ended = self._ends.begun[place[known]], self._ends.ended[place[known]]
        cut = self._reports.column("cut_at").to_numpy()[known]
        groups = Groups(self._processes.codes[known], np.zeros(len(known), np.int64))
        delay = np.rint(np.nan_to_num(cut - begun) * MICROSECONDS).astype(np.int64)
        return _rows(
            "clock",
            one=self._processes.texts(groups.one),
            samples=groups.counts(),
            delay_sum=groups.sums(delay),
            ahead_max=groups.maxima(np.fmax(cut - ended, 0.0)),
            behind_max=groups.maxima(np.fmax(begun - cut, 0.0)),
        )

    def _headless(self) -> pa.Table:
        alone, counts = np.unique(self._snapshot[~np.isin(self._snapshot, self._ends.snapshot)], return_counts=True)
        own = pa.array([self._archive] * len(alone), STRING)
        return _rows("headless", one=pa.array([""] * len(alone), STRING), snapshot=alone, archive=own, samples=counts)

    def _orphans(self) -> pa.Table:
        seen, by = flattened(self._reports.column("seen"))
        asked = seen.field("caller").field("process")
        sender, same = self._senders(seen.field("caller"), by)
        highest = seen.field("highest").to_numpy(zero_copy_only=False)
        following = self._reports.column("next_number").to_numpy()[sender]
        wrong = np.flatnonzero(same & (highest >= following))
        return _rows(
            "orphan",
            one=self._processes.texts(self._processes.codes[by[wrong]]),
            two=asked.take(pa.array(wrong)),
            snapshot=self._snapshot[by[wrong]],
            archive=pa.array([self._archive] * len(wrong), STRING),
            samples=np.ones(len(wrong), np.int64),
            incarnation_max=self._reports.column("incarnation").to_numpy()[sender][wrong],
            highest_max=highest[wrong],
            next_number_max=following[wrong],
        )

    def _senders(self, caller: pa.StructArray, by: Int64s) -> tuple[Int64s, Truths]:
        """Return the row of each caller's own report in the snapshot of report ``by``, and whether its incarnation has one."""
        words = EncodedTexts(pa.concat_arrays([caller.field("process"), combined(self._reports.column("process"))]))
        asked, own = words.codes[: len(caller)], words.codes[len(caller) :]
        senders, wanted = self._place * words.count + own, self._place[by] * words.count + asked
        order = np.argsort(senders, kind="stable")
        sender = order[np.minimum(np.searchsorted(senders[order], wanted), len(order) - 1)]
        incarnations = self._reports.column("incarnation").to_numpy()
        same = senders[sender] == wanted
        same &= incarnations[sender] == pc.fill_null(caller.field("incarnation"), -1).to_numpy()
        return sender, same


def _numbers(calls: pa.StructArray, at: Int64s) -> Int64s:
    """Return the numbers of the calls at these positions; 0 for a call without a stamp."""
    found: Int64s = pc.fill_null(calls.field("number").take(pa.array(at)), 0).to_numpy()
    return found


def _rows(kind: str, **columns: Any) -> pa.Table:
    count = len(columns["one"])
    filled = {name: _measure(values, TALLY.field(name)) for name, values in columns.items()}
    filled |= {"kind": pa.repeat(kind, count)} | ({} if "snapshot" in columns else {"snapshot": pa.repeat(0, count)})
    filled |= {name: pa.repeat("", count) for name in ("two", "archive") if name not in columns}
    return pa.table([filled.get(field.name, pa.nulls(count, field.type)) for field in TALLY], schema=TALLY)


def _measure(values: Any, field: pa.Field) -> pa.Array:
    array = values if isinstance(values, pa.Array) else pa.array(values, from_pandas=True)
    return array if array.type == field.type else array.cast(field.type)
