"""Totals over the reports of an archive, counted a few whole snapshots at a time: columns in, a few rows out.

A tally's rows are put together by :func:`merged`, in any order and any grouping, with the same result: their measures are
sums of whole numbers and greatest values, so no rounding depends on the order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from detector.analysis.groups import Groups, Real, Words, times
from detector.archive.deduplicate import by_archive
from detector.archive.rows.list_columns import Whole, flattened, whole
from detector.archive.rows.schema import CALLER, REAL, SMALL, TEXT, TRUTH, WHOLE, listed

Truths = NDArray[np.bool_]
MICROSECONDS = 1_000_000


TALLIED = pa.schema(
    [
        ("archive", TEXT),
        ("snapshot", WHOLE),
        ("begun", REAL),
        ("service", TEXT),
        ("process", TEXT),
        ("incarnation", WHOLE),
        ("cut_at", REAL),
        ("next_number", WHOLE),
        ("made", listed(number=WHOLE, servers=pa.map_(TEXT, WHOLE), party=TEXT, doubtful=TRUTH)),
        ("served", listed(party=TEXT, caller=CALLER, number=WHOLE, serving=TRUTH, pool=TEXT)),
        ("seen", listed(caller=CALLER, highest=WHOLE)),
        ("pools", listed(name=TEXT, size=SMALL, queued=SMALL)),
        ("waits", listed(among=listed(resource=TEXT))),
        ("resolved", listed(waiter=TEXT, since=REAL)),
    ]
)
"""What is read of ``reports``: a third of its bytes."""

KEYS = ("kind", "one", "two", "archive", "snapshot")
SUMS = ("samples", "busy_sum", "queued_sum", "full_sum", "sized_sum", "delay_sum")
MOSTS = ("size_max", "busy_max", "queued_max", "incarnation_max", "highest_max", "next_number_max")
LONGEST = ("waited_max", "ahead_max", "behind_max")
TALLY = pa.schema(
    [
        *((name, TEXT) for name in KEYS[:4]),
        ("snapshot", WHOLE),
        *((name, WHOLE) for name in (*SUMS, *MOSTS)),
        *((name, REAL) for name in LONGEST),
    ]
)
"""A row per kind and key; what a kind does not measure is null.

========= ===================== ==========================================================================
kind      one, two              measures
========= ===================== ==========================================================================
blocked   service, method       samples of waits; the longest (``waited_max``, seconds)
pool      service, pool         busy workers, queued calls, how often none was free (of ``sized_sum`` bounded)
lock      resource              samples of waits for it
holding   service, process      calls made by a party that occupies a worker, and the process that has them by its own
                                report; where none has, each that has answered on the channel before
process   process, service      reports
clock     process               the most by which its cuts lay after the end or before the beginning, seconds; their
                                delay (``delay_sum``, microseconds)
headless                        reports of ``snapshot``, which has no row in ``snapshots``
orphan    server, process       rule 5: in ``snapshot`` it had seen ``highest_max`` of a caller that was to send
                                ``next_number_max`` next
========= ===================== ==========================================================================
"""


DAY = "day"
DAILY = pa.schema([*TALLY, (DAY, TEXT)])
"""A tally for each of the archive's days."""


@dataclass(frozen=True, slots=True, eq=False)
class Ends:
    """When each snapshot began and ended: (S,) each, sorted by ``snapshot``; NaN where it is not known."""

    snapshot: Whole
    begun: Real
    ended: Real


NO_ENDS = Ends(np.empty(0, np.int64), np.empty(0), np.empty(0))


def tallied(reports: pa.Table, ends: Mapping[str, Ends]) -> pa.Table:
    """The tally of some whole snapshots' reports (with the columns of ``TALLIED``); ``ends`` by archive."""
    if not reports.num_rows:
        return TALLY.empty_table()
    return merged([_Counting(rows, ends.get(name, NO_ENDS), name).table() for name, rows in by_archive(reports)])


def merged(tallies: Iterable[pa.Table], schema: pa.Schema = TALLY) -> pa.Table:
    """One tally for several, all of ``schema``: ``TALLY`` or ``DAILY``."""
    together = pa.concat_tables([schema.empty_table(), *tallies])
    keys = [name for name in schema.names if name in {*KEYS, DAY}]
    found = together.group_by(keys, use_threads=False).aggregate(
        [*((name, "sum") for name in SUMS), *((name, "max") for name in (*MOSTS, *LONGEST))]
    )
    told = {name: name for name in keys} | {name: f"{name}_sum" for name in SUMS}
    told |= {name: f"{name}_max" for name in (*MOSTS, *LONGEST)}
    return pa.table([found.column(told[field.name]).cast(field.type) for field in schema], schema=schema)


class _Counting:
    """The kinds of a tally, one by one, over columns that several of them need."""

    def __init__(self, reports: pa.Table, ends: Ends, archive: str) -> None:
        self._archive = archive
        self._reports = reports
        self._ends = ends
        self._snapshot = reports.column("snapshot").to_numpy()
        self._services = Words(reports.column("service"))
        self._processes = Words(reports.column("process"))
        self._served, self._served_by = flattened(reports.column("served"))
        serving = pc.fill_null(self._served.field("serving"), False).to_numpy(zero_copy_only=False)
        self._busy = np.flatnonzero(serving)

    def table(self) -> pa.Table:
        """All kinds."""
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
        methods = Words(pc.struct_field(pc.extract_regex(waits.field("waiter"), r"/(?P<method>[^#@~]*)"), "method"), "")
        begun = self._reports.column("begun").to_numpy()
        waited = begun[by] - waits.field("since").to_numpy(zero_copy_only=False)
        groups = Groups(self._services.codes[by], methods.codes)
        return _rows(
            "blocked",
            one=self._services.words(groups.one),
            two=methods.words(groups.two),
            samples=groups.counts(),
            waited_max=groups.most(waited),
        )

    def _pools(self) -> pa.Table:
        pools, by = flattened(self._reports.column("pools"))
        words = Words(pa.concat_arrays([pools.field("name"), self._served.field("pool")]))
        named, used = words.codes[: len(pools)], words.codes[len(pools) :]
        taken = np.sort(self._served_by[self._busy] * words.count + used[self._busy])
        busy = times(by * words.count + named, taken)
        size = pools.field("size")
        bounded = size.is_valid().to_numpy(zero_copy_only=False)
        sizes = pc.fill_null(size, 0).to_numpy(zero_copy_only=False).astype(np.int64)
        queued = pc.fill_null(pools.field("queued"), 0).to_numpy(zero_copy_only=False).astype(np.int64)
        groups = Groups(self._services.codes[by], named)
        sized = groups.sums(bounded)
        return _rows(
            "pool",
            one=self._services.words(groups.one),
            two=words.words(groups.two),
            samples=groups.counts(),
            busy_sum=groups.sums(busy),
            queued_sum=groups.sums(queued),
            full_sum=groups.sums(bounded & (busy >= sizes)),
            sized_sum=sized,
            size_max=pa.array(groups.most(sizes.astype(np.float64)), mask=sized == 0).cast(WHOLE),
            busy_max=groups.most(busy.astype(np.float64)),
            queued_max=groups.most(queued.astype(np.float64)),
        )

    def _locks(self) -> pa.Table:
        waits, _ = flattened(self._reports.column("waits"))
        among, _ = flattened(waits.field("among"))
        resources = Words(among.field("resource").drop_null())
        groups = Groups(resources.codes, np.zeros_like(resources.codes))
        return _rows("lock", one=resources.words(groups.one), samples=groups.counts())

    def _holding(self) -> pa.Table:
        made, by = flattened(self._reports.column("made"))
        pooled = pc.fill_null(pc.not_equal(self._served.field("pool"), ""), False).to_numpy(zero_copy_only=False)
        busy = self._busy[pooled[self._busy]]
        parties = Words(pa.concat_arrays([made.field("party"), self._served.field("party").take(pa.array(busy))]))
        caller, occupying = parties.codes[: len(made)], parties.codes[len(made) :]
        doubtful = pc.fill_null(made.field("doubtful"), True).to_numpy(zero_copy_only=False)
        holds = times(by * parties.count + caller, np.sort(self._served_by[busy] * parties.count + occupying)) > 0
        holds &= ~doubtful
        calls = np.flatnonzero(holds)
        by = by[calls]
        owners, having = self._having(by, _numbers(made, calls))
        elsewhere = np.setdiff1d(np.arange(len(calls)), owners)
        servers, of = flattened(made.field("servers").take(pa.array(calls[elsewhere])))
        callees = Words(pa.concat_arrays([whole(self._reports.column("process")).take(pa.array(having)), servers.field("key")]))
        groups = Groups(self._services.codes[by[np.concatenate([owners, elsewhere[of]])]], callees.codes)
        return _rows("holding", one=self._services.words(groups.one), two=callees.words(groups.two), samples=groups.counts())

    def _having(self, by: Whole, numbers: Whole) -> tuple[Whole, Whole]:
        """Which of the calls of these callers (their reports) and numbers a process has by its own report, and that report."""
        sender, known = self._senders(self._served.field("caller"), self._served_by)
        makes = np.zeros(len(self._snapshot), np.bool_)
        makes[by] = True
        told = np.flatnonzero(known & makes[sender])
        each, codes = np.unique(np.concatenate([numbers, _numbers(self._served, told)]), return_inverse=True)
        mine, theirs = by * len(each) + codes[: len(by)], sender[told] * len(each) + codes[len(by) :]
        order = np.argsort(mine, kind="stable")
        place = np.minimum(np.searchsorted(mine[order], theirs), max(len(mine) - 1, 0))
        found = np.flatnonzero(mine[order][place] == theirs) if len(mine) else place[:0]
        return order[place[found]], self._served_by[told[found]]

    def _members(self) -> pa.Table:
        groups = Groups(self._processes.codes, self._services.codes)
        return _rows(
            "process",
            one=self._processes.words(groups.one),
            two=self._services.words(groups.two),
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
            one=self._processes.words(groups.one),
            samples=groups.counts(),
            delay_sum=groups.sums(delay),
            ahead_max=groups.most(np.fmax(cut - ended, 0.0)),
            behind_max=groups.most(np.fmax(begun - cut, 0.0)),
        )

    def _headless(self) -> pa.Table:
        alone, counts = np.unique(self._snapshot[~np.isin(self._snapshot, self._ends.snapshot)], return_counts=True)
        own = pa.array([self._archive] * len(alone), TEXT)
        return _rows("headless", one=pa.array([""] * len(alone), TEXT), snapshot=alone, archive=own, samples=counts)

    def _orphans(self) -> pa.Table:
        seen, by = flattened(self._reports.column("seen"))
        asked = seen.field("caller").field("process")
        sender, same = self._senders(seen.field("caller"), by)
        highest = seen.field("highest").to_numpy(zero_copy_only=False)
        following = self._reports.column("next_number").to_numpy()[sender]
        wrong = np.flatnonzero(same & (highest >= following))
        return _rows(
            "orphan",
            one=self._processes.words(self._processes.codes[by[wrong]]),
            two=asked.take(pa.array(wrong)),
            snapshot=self._snapshot[by[wrong]],
            archive=pa.array([self._archive] * len(wrong), TEXT),
            samples=np.ones(len(wrong), np.int64),
            incarnation_max=self._reports.column("incarnation").to_numpy()[sender][wrong],
            highest_max=highest[wrong],
            next_number_max=following[wrong],
        )

    def _senders(self, caller: pa.StructArray, by: Whole) -> tuple[Whole, Truths]:
        """The row of each caller's own report in the snapshot of the report ``by``, and whether that incarnation has one."""
        words = Words(pa.concat_arrays([caller.field("process"), whole(self._reports.column("process"))]))
        asked, own = words.codes[: len(caller)], words.codes[len(caller) :]
        _, at = np.unique(self._snapshot, return_inverse=True)
        senders, wanted = at * words.count + own, at[by] * words.count + asked
        order = np.argsort(senders, kind="stable")
        sender = order[np.minimum(np.searchsorted(senders[order], wanted), len(order) - 1)]
        incarnations = self._reports.column("incarnation").to_numpy()
        same = senders[sender] == wanted
        same &= incarnations[sender] == pc.fill_null(caller.field("incarnation"), -1).to_numpy()
        return sender, same


def _numbers(calls: pa.StructArray, at: Whole) -> Whole:
    """The numbers of the calls at these places; 0 without a stamp."""
    found: Whole = pc.fill_null(calls.field("number").take(pa.array(at)), 0).to_numpy()
    return found


def _rows(kind: str, **columns: Any) -> pa.Table:
    count = len(columns["one"])
    told = {name: _measure(values, TALLY.field(name)) for name, values in columns.items()}
    told |= {"kind": pa.repeat(kind, count)} | ({} if "snapshot" in columns else {"snapshot": pa.repeat(0, count)})
    told |= {name: pa.repeat("", count) for name in ("two", "archive") if name not in columns}
    return pa.table([told.get(field.name, pa.nulls(count, field.type)) for field in TALLY], schema=TALLY)


def _measure(values: Any, field: pa.Field) -> pa.Array:
    array = values if isinstance(values, pa.Array) else pa.array(values, from_pandas=True)
    return array if array.type == field.type else array.cast(field.type)
