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

from detector.archive.deduplicate import by_archive
from detector.archive.rows.list_columns import Whole, flattened, whole
from detector.archive.rows.schema import CALLER, REAL, SMALL, TEXT, TRUTH, WHOLE, listed

Real = NDArray[np.float64]
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
        ("made", listed(servers=pa.map_(TEXT, WHOLE), party=TEXT, doubtful=TRUTH)),
        ("served", listed(party=TEXT, serving=TRUTH, pool=TEXT)),
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
holding   service, process      calls to a process made by a party that occupies a worker
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
        self._services = _Words(reports.column("service"))
        self._processes = _Words(reports.column("process"))
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
        methods = _Words(pc.struct_field(pc.extract_regex(waits.field("waiter"), r"/(?P<method>[^#@~]*)"), "method"), "")
        begun = self._reports.column("begun").to_numpy()
        waited = begun[by] - waits.field("since").to_numpy(zero_copy_only=False)
        groups = _Groups(self._services.codes[by], methods.codes)
        return _rows(
            "blocked",
            one=self._services.words(groups.one),
            two=methods.words(groups.two),
            samples=groups.counts(),
            waited_max=groups.most(waited),
        )

    def _pools(self) -> pa.Table:
        pools, by = flattened(self._reports.column("pools"))
        words = _Words(pa.concat_arrays([pools.field("name"), self._served.field("pool")]))
        named, used = words.codes[: len(pools)], words.codes[len(pools) :]
        taken = np.sort(self._served_by[self._busy] * words.count + used[self._busy])
        busy = _times(by * words.count + named, taken)
        size = pools.field("size")
        bounded = size.is_valid().to_numpy(zero_copy_only=False)
        sizes = pc.fill_null(size, 0).to_numpy(zero_copy_only=False).astype(np.int64)
        queued = pc.fill_null(pools.field("queued"), 0).to_numpy(zero_copy_only=False).astype(np.int64)
        groups = _Groups(self._services.codes[by], named)
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
        resources = _Words(among.field("resource").drop_null())
        groups = _Groups(resources.codes, np.zeros_like(resources.codes))
        return _rows("lock", one=resources.words(groups.one), samples=groups.counts())

    def _holding(self) -> pa.Table:
        made, by = flattened(self._reports.column("made"))
        pooled = pc.fill_null(pc.not_equal(self._served.field("pool"), ""), False).to_numpy(zero_copy_only=False)
        busy = self._busy[pooled[self._busy]]
        parties = _Words(pa.concat_arrays([made.field("party"), self._served.field("party").take(pa.array(busy))]))
        caller, occupying = parties.codes[: len(made)], parties.codes[len(made) :]
        doubtful = pc.fill_null(made.field("doubtful"), True).to_numpy(zero_copy_only=False)
        holds = _times(by * parties.count + caller, np.sort(self._served_by[busy] * parties.count + occupying)) > 0
        holds &= ~doubtful
        calls = np.flatnonzero(holds)
        servers, of = flattened(made.field("servers").take(pa.array(calls)))
        callees = _Words(servers.field("key"))
        groups = _Groups(self._services.codes[by[calls][of]], callees.codes)
        return _rows("holding", one=self._services.words(groups.one), two=callees.words(groups.two), samples=groups.counts())

    def _members(self) -> pa.Table:
        groups = _Groups(self._processes.codes, self._services.codes)
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
        groups = _Groups(self._processes.codes[known], np.zeros(len(known), np.int64))
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
        caller = seen.field("caller")
        words = _Words(pa.concat_arrays([caller.field("process"), whole(self._reports.column("process"))]))
        asked, own = words.codes[: len(seen)], words.codes[len(seen) :]
        _, at = np.unique(self._snapshot, return_inverse=True)
        senders = at * words.count + own
        order = np.argsort(senders, kind="stable")
        place = np.searchsorted(senders[order], at[by] * words.count + asked)
        sender = order[np.minimum(place, len(order) - 1)]
        incarnations = self._reports.column("incarnation").to_numpy()
        highest = seen.field("highest").to_numpy(zero_copy_only=False)
        following = self._reports.column("next_number").to_numpy()[sender]
        same = senders[sender] == at[by] * words.count + asked
        same &= incarnations[sender] == caller.field("incarnation").to_numpy(zero_copy_only=False)
        wrong = np.flatnonzero(same & (highest >= following))
        return _rows(
            "orphan",
            one=self._processes.words(self._processes.codes[by[wrong]]),
            two=words.words(asked[wrong]),
            snapshot=self._snapshot[by[wrong]],
            archive=pa.array([self._archive] * len(wrong), TEXT),
            samples=np.ones(len(wrong), np.int64),
            incarnation_max=incarnations[sender][wrong],
            highest_max=highest[wrong],
            next_number_max=following[wrong],
        )


class _Words:
    """Texts as numbers below ``count``; a null is ``unknown``."""

    def __init__(self, texts: pa.Array | pa.ChunkedArray, unknown: str = "") -> None:
        coded = whole(texts)
        coded = pc.fill_null(coded, unknown) if coded.null_count else coded
        coded = coded.dictionary_encode()
        self.codes: Whole = coded.indices.to_numpy().astype(np.int64)
        self.count = max(len(coded.dictionary), 1)
        self._dictionary = coded.dictionary

    def words(self, codes: Whole) -> pa.Array:
        """The texts of ``codes``."""
        return self._dictionary.take(pa.array(codes))


class _Groups:
    """Rows grouped by two numbers; ``one`` and ``two`` are the groups'."""

    def __init__(self, one: Whole, two: Whole) -> None:
        width = int(two.max(initial=0)) + 1
        keys, self._group = np.unique(one * width + two, return_inverse=True)
        self.one, self.two = np.divmod(keys, width)

    def counts(self) -> Whole:
        """How many rows each has."""
        return np.bincount(self._group, minlength=len(self.one))

    def sums(self, values: NDArray[Any]) -> Whole:
        """Sums of whole numbers, exact below 2^53."""
        return np.bincount(self._group, weights=values, minlength=len(self.one)).astype(np.int64)

    def most(self, values: Real) -> Real:
        """The greatest of each that is a number; NaN where there is none."""
        found = np.full(len(self.one), np.nan)
        np.fmax.at(found, self._group, values)
        return found


def _times(keys: Whole, of: Whole) -> Whole:
    """How often each key occurs in the sorted ``of``."""
    return np.searchsorted(of, keys, side="right") - np.searchsorted(of, keys, side="left")


def _rows(kind: str, **columns: Any) -> pa.Table:
    count = len(columns["one"])
    told = {name: _measure(values, TALLY.field(name)) for name, values in columns.items()}
    told |= {"kind": pa.repeat(kind, count)} | ({} if "snapshot" in columns else {"snapshot": pa.repeat(0, count)})
    told |= {name: pa.repeat("", count) for name in ("two", "archive") if name not in columns}
    return pa.table([told.get(field.name, pa.nulls(count, field.type)) for field in TALLY], schema=TALLY)


def _measure(values: Any, field: pa.Field) -> pa.Array:
    array = values if isinstance(values, pa.Array) else pa.array(values, from_pandas=True)
    return array if array.type == field.type else array.cast(field.type)
