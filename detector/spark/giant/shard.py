"""One shard of a giant wait-for graph: some of its waits, and what a round of the reduction can derive from them alone.

A shard holds whole waits, any of them, over parties numbered 0 to P - 1 for the entire graph. What it knows of the rest of the
graph is one bit a party: free or not. Between rounds its state lies in a file, so that any worker can go on with it.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import IO, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from detector.archive.rows.list_columns import whole
from detector.graph.columns import Bools, Ints
from detector.graph.open_waits import OpenWaits
from detector.graph.reduction import initial, run_to_end
from detector.graph.sweep import sweep_all

SEEN_AT_ONCE_MAX = 8
"""Targets of a wait that are compared one with another, not sorted."""
NUMBERED_SHARE = 4
"""With fewer than one wait for this many parties, waits are renumbered."""


class WaitsError(ValueError):
    """A row group (path, number) that holds something else than waits."""

    def __init__(self, place: tuple[str, int], what: str) -> None:
        super().__init__(f"{place[0]}, row group {place[1]}: {what}")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Shard:
    """Open waits as CSR; ``short`` says how many of each wait's targets must still come."""

    waiter: Ints
    short: Ints
    indptr: Ints
    targets: Ints

    @classmethod
    def read(cls, filesystem: fs.FileSystem, places: Sequence[tuple[str, int]], parties: int) -> Shard:
        """Waits from row groups (path, number) with the columns ``waiter``, ``needs`` and ``among`` (a list), all integers.

        Raises
        ------
        WaitsError
            When a row is no wait of parties below ``parties``; file and row group are named.
        """
        groups = _row_groups(filesystem, places, ["waiter", "needs", "among"])
        return joined([cls._from(rows, place, parties) for place, rows in zip(places, groups, strict=True)])

    @classmethod
    def _from(cls, rows: pa.Table, place: tuple[str, int], parties: int) -> Shard:
        among = whole(rows.column("among"))
        if among.null_count or rows.column("needs").null_count:
            raise WaitsError(place, "needs or among is null in some row")
        offsets = among.offsets.to_numpy()
        indptr = (offsets - offsets[0]).astype(np.int32)
        indptr, targets = _distinct(indptr, _numbers("among", among.flatten(), place, parties).astype(np.int32))
        waiter, needs = _numbers("waiter", rows.column("waiter"), place, parties), rows.column("needs").to_numpy()
        wrong = np.flatnonzero((needs < 1) | (needs > np.diff(indptr)))
        if len(wrong):
            least, most = int(needs[wrong[0]]), int(np.diff(indptr)[wrong[0]])
            raise WaitsError(place, f"row {wrong[0]}: needs is {least}, of {most} different parties in among")
        return cls(waiter=waiter.astype(np.int32), short=needs.astype(np.int32), indptr=indptr, targets=targets)

    @classmethod
    def load(cls, filesystem: fs.FileSystem, path: str) -> Shard:
        """The state that :meth:`save` wrote."""
        with filesystem.open_input_file(path) as source:
            arrays = [np.load(cast("IO[bytes]", source), allow_pickle=False) for _ in range(4)]
        return cls(waiter=arrays[0], short=arrays[1], indptr=arrays[2], targets=arrays[3])

    def save(self, filesystem: fs.FileSystem, path: str) -> None:
        """Keep the state for the next round."""
        with written(filesystem, path) as sink:
            for array in (self.waiter, self.short, self.indptr, self.targets):
                np.save(cast("IO[bytes]", sink), array, allow_pickle=False)

    def waiters(self, parties: int) -> Bools:
        """(P,) the parties that wait here."""
        waiting = np.zeros(parties, np.bool_)
        waiting[self.waiter] = True
        return waiting

    def reduced(self, held: Bools, share_min: float = 0.0) -> Shard:
        """The waits that stay open when all parties but ``held`` (P,) may be freed by this shard's waits.

        Sweeps come first, and mostly suffice. What they do not end, if it is little, is numbered anew for the rest of the
        reduction, whose memory is then that of the parties concerned.

        Parameters
        ----------
        held : who is not to be freed.
        share_min : as of :func:`~detector.graph.sweep.sweep_all`: with more than 0, some of what is left could be freed yet.
        """
        free, blocked, rest = initial(self.open_waits(len(held)), held)
        if sweep_all(free, blocked, rest, share_min):
            return Shard._of(rest.settled(free))
        rest = rest.without_over(free)
        if len(held) < NUMBERED_SHARE * len(rest):
            return Shard._of(run_to_end(free, blocked, rest).settled(free))
        own, parties = Shard._of(rest).numbered()
        free, blocked = free[parties], None if blocked is None else blocked[parties]
        return Shard._of(run_to_end(free, blocked, own.open_waits(len(parties))).settled(free)).renamed(parties)

    def numbered(self) -> tuple[Shard, Ints]:
        """The same waits over the parties that occur in them, numbered anew; and who those are."""
        there = np.zeros(1 + max(self.waiter.max(initial=-1), self.targets.max(initial=-1)), np.bool_)
        there[self.waiter] = True
        there[self.targets] = True
        number = np.cumsum(there, dtype=np.int32)
        number -= 1
        numbered = Shard(waiter=number[self.waiter], short=self.short, indptr=self.indptr, targets=number.take(self.targets))
        return numbered, np.flatnonzero(there).astype(np.int32)

    def renamed(self, parties: Ints) -> Shard:
        """The same waits over the numbers that ``parties`` (P,) give to theirs: :meth:`numbered` undone."""
        return Shard(waiter=parties[self.waiter], short=self.short, indptr=self.indptr, targets=parties.take(self.targets))

    def lined(self) -> Shard:
        """The same waits by waiter, as the reduction wants them."""
        if (self.waiter[1:] >= self.waiter[:-1]).all():
            return self
        order = _by_number(self.waiter)
        sizes = np.diff(self.indptr)[order]
        indptr = np.zeros_like(self.indptr)
        np.cumsum(sizes, out=indptr[1:])
        begins = self.indptr[:-1][order]
        if len(self.targets) != len(self.waiter) or not (sizes == 1).all():
            begins = np.repeat(begins - indptr[:-1], sizes)
            begins += np.arange(len(begins), dtype=begins.dtype)
        return Shard(waiter=self.waiter[order], short=self.short[order], indptr=indptr, targets=self.targets.take(begins))

    def core(self, parties: int) -> Bools:
        """(P,) who lies on a cycle of these waits: a strong component of several, or a wait for oneself."""
        rows = np.repeat(self.waiter, np.diff(self.indptr))
        inside = self.waiters(parties)[self.targets]
        rows, targets = rows[inside], self.targets[inside]
        graph = csr_array((np.ones(len(rows), np.int8), (rows, targets)), shape=(parties, parties))
        _, labels = connected_components(graph, directed=True, connection="strong")
        on_cycle: Bools = np.bincount(labels, minlength=1)[labels] > 1
        on_cycle[rows[rows == targets]] = True
        return on_cycle

    def open_waits(self, parties: int) -> OpenWaits:
        """The same as the reduction wants it, over P parties."""
        return OpenWaits(
            open=np.broadcast_to(np.int32(0), len(self.waiter)),  # which they were is never asked
            waiter=self.waiter,
            short=self.short,
            indptr=self.indptr,
            targets=self.targets,
            parties=parties,
        )

    @classmethod
    def _of(cls, rest: OpenWaits) -> Shard:
        return cls(waiter=rest.waiter, short=rest.short, indptr=rest.indptr, targets=rest.targets)


def waiting_in(filesystem: fs.FileSystem, places: Sequence[tuple[str, int]], parties: int) -> Bools:
    """(P,) the parties that wait in these row groups; only that column is read."""
    waiting = np.zeros(parties, np.bool_)
    for place, rows in zip(places, _row_groups(filesystem, places, ["waiter"]), strict=True):
        waiting[_numbers("waiter", rows.column("waiter"), place, parties)] = True
    return waiting


def _row_groups(filesystem: fs.FileSystem, places: Sequence[tuple[str, int]], columns: list[str]) -> Iterator[pa.Table]:
    for path, own in groupby(places, key=itemgetter(0)):
        with filesystem.open_input_file(path) as source:
            file = pq.ParquetFile(source)
            for _, group in own:
                yield file.read_row_group(group, columns=columns, use_threads=False)


def _numbers(name: str, column: pa.ChunkedArray | pa.Array, place: tuple[str, int], parties: int) -> Ints:
    """The parties' numbers in a column."""
    if column.null_count:
        raise WaitsError(place, f"{name} is null in some row")
    numbers: Ints = column.to_numpy()
    least, most = int(numbers.min(initial=0)), int(numbers.max(initial=0))
    if least < 0 or most >= parties:
        raise WaitsError(place, f"{name}: there is no party {least if least < 0 else most} (from 0 to {parties - 1})")
    return numbers


def _distinct(indptr: Ints, targets: Ints) -> tuple[Ints, Ints]:
    """The same rows with each of their targets once."""
    sizes = np.diff(indptr)
    largest = int(sizes.max(initial=0))
    if largest <= SEEN_AT_ONCE_MAX and not any(_repeated(indptr, targets, gap) for gap in range(1, largest)):
        return indptr, targets
    keys = np.sort(np.repeat(np.arange(len(sizes), dtype=np.int64) << 32, sizes) | targets)
    fresh = np.append(True, keys[1:] != keys[:-1])[: len(keys)]
    if fresh.all():
        return indptr, targets
    keys = keys[fresh]
    once = np.zeros_like(indptr)
    np.cumsum(np.bincount(keys >> 32, minlength=len(sizes)), out=once[1:])
    return once, (keys & 0xFFFFFFFF).astype(np.int32)


def _repeated(indptr: Ints, targets: Ints, gap: int) -> bool:
    """Whether some row has the same target twice, ``gap`` places apart."""
    equal = np.flatnonzero(targets[:-gap] == targets[gap:])  # of parties in no order hardly any
    ends = indptr[np.searchsorted(indptr, equal, side="right")]
    return bool((equal + gap < ends).any())


def _by_number(numbers: Ints) -> Ints:
    """The order that sorts ``numbers`` and leaves equal ones as they are, in linear time."""
    place = np.full(int(numbers.max(initial=-1)) + 1, -1, np.int32)
    place[numbers] = np.arange(len(numbers), dtype=np.int32)
    order = place[place >= 0]
    if len(order) == len(numbers):  # no duplicates
        return order
    return np.argsort(numbers, kind="stable").astype(np.int32)


def joined(parts: Sequence[Shard]) -> Shard:
    """Several shards' waits as one's."""
    if len(parts) == 1:
        return parts[0]
    ends = np.cumsum([0, *(len(part.targets) for part in parts)])
    begins: list[Ints] = [part.indptr[1:] + end for part, end in zip(parts, ends.tolist(), strict=False)]
    return Shard(
        waiter=np.concatenate([part.waiter for part in parts] or [np.empty(0, np.int32)]),
        short=np.concatenate([part.short for part in parts] or [np.empty(0, np.int32)]),
        indptr=np.concatenate([np.zeros(1, np.int64), *begins]).astype(np.int32 if ends[-1] < 2**31 else np.int64),
        targets=np.concatenate([part.targets for part in parts] or [np.empty(0, np.int32)]),
    )


@contextmanager
def written(filesystem: fs.FileSystem, path: str) -> Iterator[pa.NativeFile]:
    """A file that comes to be whole: readers see the old one or the new one."""
    aside = f"{path}.{uuid.uuid4().hex[:8]}"
    with filesystem.open_output_stream(aside) as sink:
        yield sink
    filesystem.move(aside, path)
