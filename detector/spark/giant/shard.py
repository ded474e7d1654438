"""One shard of a giant wait-for graph: a subset of the waits, and how far these alone can be reduced.

Parties are numbered from 0 to P - 1 for the entire graph. A shard knows one bit per party about the other shards: free or not.
Between rounds its state is in a file, so that any worker can continue with it.
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

from detector.archive.rows.list_columns import combined
from detector.graph.columns import Bools, Ints
from detector.graph.open_waits import OpenWaits
from detector.graph.reduction import initial, run_to_end
from detector.graph.sweep import sweep_all

SEEN_AT_ONCE_MAX = 8
"""Up to this many targets per wait are compared pairwise instead of sorted."""
NUMBERED_SHARE = 4
"""Parties are renumbered if there are more than this many per wait."""


class WaitsError(ValueError):
    """A row group (path, number) has invalid waits."""

    def __init__(self, place: tuple[str, int], what: str) -> None:
        super().__init__(f"{place[0]}, row group {place[1]}: {what}")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Shard:
    """Open waits in CSR form; ``short`` is the number of targets that each wait still needs."""

    waiter: Ints
    short: Ints
    indptr: Ints
    targets: Ints

    @classmethod
    def read(cls, filesystem: fs.FileSystem, places: Sequence[tuple[str, int]], parties: int) -> Shard:
        """Read row groups (path, number) with the columns ``waiter``, ``needs`` and ``among`` (a list), all integers.

        Raises
        ------
        WaitsError
            If a row is not a valid wait of parties below ``parties``; the message names file and row group.
        """
        groups = _row_groups(filesystem, places, ["waiter", "needs", "among"])
        return concatenated([cls._from(rows, place, parties) for place, rows in zip(places, groups, strict=True)])

    @classmethod
    def _from(cls, rows: pa.Table, place: tuple[str, int], parties: int) -> Shard:
        among = combined(rows.column("among"))
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
        """Load the state that :meth:`save` wrote."""
        with filesystem.open_input_file(path) as source:
            arrays = [np.load(cast("IO[bytes]", source), allow_pickle=False) for _ in range(4)]
        return cls(waiter=arrays[0], short=arrays[1], indptr=arrays[2], targets=arrays[3])

    def save(self, filesystem: fs.FileSystem, path: str) -> None:
        """Save the state for the next round."""
        with atomic_output(filesystem, path) as sink:
            for array in (self.waiter, self.short, self.indptr, self.targets):
                np.save(cast("IO[bytes]", sink), array, allow_pickle=False)

    def waiters(self, parties: int) -> Bools:
        """Return (P,) whether each party waits in this shard."""
        waiting = np.zeros(parties, np.bool_)
        waiting[self.waiter] = True
        return waiting

    def reduced(self, held: Bools, share_min: float = 0.0) -> Shard:
        """Reduce the waits, freeing no ``held`` party; return those that stay open.

        Sweeps come first and usually suffice. If few waits are left, their parties are renumbered for the rest of the
        reduction, so that memory depends only on these parties.

        Parameters
        ----------
        held : (P,) parties that must not be freed.
        share_min : see :func:`~detector.graph.sweep.sweep_all`; above 0, some of the remaining parties could still be freed.
        """
        free, blocked, rest = initial(self.open_waits(len(held)), held)
        if sweep_all(free, blocked, rest, share_min):
            return Shard._of(rest.settled(free))
        rest = rest.without_ended(free)
        if len(held) < NUMBERED_SHARE * len(rest):
            return Shard._of(run_to_end(free, blocked, rest).settled(free))
        own, parties = Shard._of(rest).numbered()
        free, blocked = free[parties], None if blocked is None else blocked[parties]
        return Shard._of(run_to_end(free, blocked, own.open_waits(len(parties))).settled(free)).renamed(parties)

    def numbered(self) -> tuple[Shard, Ints]:
        """Renumber the parties that occur in the waits; also return their old numbers."""
        present = np.zeros(1 + max(self.waiter.max(initial=-1), self.targets.max(initial=-1)), np.bool_)
        present[self.waiter] = True
        present[self.targets] = True
        number = np.cumsum(present, dtype=np.int32)
        number -= 1
        numbered = Shard(waiter=number[self.waiter], short=self.short, indptr=self.indptr, targets=number.take(self.targets))
        return numbered, np.flatnonzero(present).astype(np.int32)

    def renamed(self, parties: Ints) -> Shard:
        """Undo :meth:`numbered`: replace each party's number by its entry in ``parties`` (P,)."""
        return Shard(waiter=parties[self.waiter], short=self.short, indptr=self.indptr, targets=parties.take(self.targets))

    def sorted_by_waiter(self) -> Shard:
        """Sort the waits by waiter, as the reduction requires."""
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
        """Return (P,) the parties on a cycle: in a strong component of several parties, or waiting for themselves."""
        rows = np.repeat(self.waiter, np.diff(self.indptr))
        inside = self.waiters(parties)[self.targets]
        rows, targets = rows[inside], self.targets[inside]
        graph = csr_array((np.ones(len(rows), np.int8), (rows, targets)), shape=(parties, parties))
        _, labels = connected_components(graph, directed=True, connection="strong")
        on_cycle: Bools = np.bincount(labels, minlength=1)[labels] > 1
        on_cycle[rows[rows == targets]] = True
        return on_cycle

    def open_waits(self, parties: int) -> OpenWaits:
        """Return the waits as input for the reduction, over P parties."""
        return OpenWaits(
            open=np.broadcast_to(np.int32(0), len(self.waiter)),  # their original numbers are not needed
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
    """Return (P,) whether each party waits in these row groups; only that column is read."""
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
    """Return the party numbers of a column, after checking them."""
    if column.null_count:
        raise WaitsError(place, f"{name} is null in some row")
    numbers: Ints = column.to_numpy()
    least, most = int(numbers.min(initial=0)), int(numbers.max(initial=0))
    if least < 0 or most >= parties:
        raise WaitsError(place, f"{name}: party {least if least < 0 else most} is not between 0 and {parties - 1}")
    return numbers


def _distinct(indptr: Ints, targets: Ints) -> tuple[Ints, Ints]:
    """Remove duplicate targets within each row."""
    sizes = np.diff(indptr)
    largest = int(sizes.max(initial=0))
    if largest <= SEEN_AT_ONCE_MAX and not any(_repeated(indptr, targets, gap) for gap in range(1, largest)):
        return indptr, targets
    keys = np.sort(np.repeat(np.arange(len(sizes), dtype=np.int64) << 32, sizes) | targets)
    fresh = np.append(True, keys[1:] != keys[:-1])[: len(keys)]
    if fresh.all():
        return indptr, targets
    keys = keys[fresh]
    distinct = np.zeros_like(indptr)
    np.cumsum(np.bincount(keys >> 32, minlength=len(sizes)), out=distinct[1:])
    return distinct, (keys & 0xFFFFFFFF).astype(np.int32)


def _repeated(indptr: Ints, targets: Ints, gap: int) -> bool:
    """Whether any row has the same target twice, ``gap`` positions apart."""
    equal = np.flatnonzero(targets[:-gap] == targets[gap:])  # hardly any if the parties are in no order
    ends = indptr[np.searchsorted(indptr, equal, side="right")]
    return bool((equal + gap < ends).any())


def _by_number(numbers: Ints) -> Ints:
    """Return the stable order that sorts ``numbers``, in linear time if there are no duplicates."""
    place = np.full(int(numbers.max(initial=-1)) + 1, -1, np.int32)
    place[numbers] = np.arange(len(numbers), dtype=np.int32)
    order = place[place >= 0]
    if len(order) == len(numbers):  # no duplicates
        return order
    return np.argsort(numbers, kind="stable").astype(np.int32)


def concatenated(parts: Sequence[Shard]) -> Shard:
    """Concatenate the waits of several shards."""
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
def atomic_output(filesystem: fs.FileSystem, path: str) -> Iterator[pa.NativeFile]:
    """Write a file atomically: readers see either the old one or the new one."""
    temporary = f"{path}.{uuid.uuid4().hex[:8]}"
    with filesystem.open_output_stream(temporary) as sink:
        yield sink
    filesystem.move(temporary, path)
