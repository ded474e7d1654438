"""Many snapshots as one wait-for graph with disjoint party numbers, so that one reduction serves them all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, cast, overload

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from detector.archive.rows.list_columns import Int64s, combined, offsets
from detector.graph.columns import NO_NUMBER, Bools, Ints, WaitColumns
from stilltrue.model import PartyName, ProcessName, process_of


class ArrowNames(Sequence[str]):
    """Names kept in Arrow until they are read; a healthy snapshot needs at most a dozen."""

    def __init__(self, names: pa.Array) -> None:
        """``names``: an array of strings."""
        self._names = names

    def read(self, at: Ints) -> list[str]:
        """Return the names at these positions."""
        names: list[str] = self._names.take(pa.array(at)).to_pylist()
        return names

    def __len__(self) -> int:
        return len(self._names)

    @overload
    def __getitem__(self, at: int) -> str: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[str]: ...
    def __getitem__(self, at: int | slice) -> str | Sequence[str]:
        if isinstance(at, slice):
            return ArrowNames(self._names[at])
        return cast("str", self._names[at].as_py())


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DisjointUnion:
    """The waits of S snapshots, over P parties in all.

    Attributes
    ----------
    columns : all waits as one graph. Names are not unique across snapshots; numbers are.
    parties, waits, targets : (S + 1,) offsets of each snapshot's parties, waits and targets.
    missing : (P,) whether the party belongs to a member that did not report.
    missing_names : the members that did not report, a tuple per snapshot.
    """

    columns: WaitColumns
    parties: Int64s
    waits: Int64s
    targets: Int64s
    missing: Bools
    missing_names: tuple[tuple[ProcessName, ...], ...]

    def __len__(self) -> int:
        return len(self.parties) - 1

    def part(self, at: int) -> WaitColumns:
        """Return one snapshot's waits, renumbered from 0, without the texts."""
        low, high = int(self.waits[at]), int(self.waits[at + 1])
        first, last = int(self.parties[at]), int(self.parties[at + 1])
        begin, end = int(self.targets[at]), int(self.targets[at + 1])
        every = self.columns
        return WaitColumns(
            names=every.names[first:last],
            waiter=every.waiter[low:high] - first,
            needs=every.needs[low:high],
            indptr=every.indptr[low : high + 1] - begin,
            targets=every.targets[begin:end] - first,
            deadline=every.deadline[low:high],
            since=every.since[low:high],
            number=every.number[low:high],
            uncoloured=every.uncoloured[low:high],
        )

    def names_of(self, parties: Ints) -> list[str]:
        """Return the names of parties, read in one go."""
        return cast("ArrowNames", self.columns.names).read(parties)

    def by_snapshot(self, parties: Ints) -> Ints:
        """Return (S + 1,) offsets of each snapshot's part of ``parties``, which are sorted."""
        return np.searchsorted(parties, self.parties)


def disjoint_union(snapshots: pa.Table) -> DisjointUnion:
    """Return the union of rows of ``snapshots`` (columns ``waits`` and ``missing``), in their order."""
    waits = combined(snapshots.column("waits"))
    parties = offsets(waits.field("names"))
    begins = offsets(waits.field("waiter"))
    counts = np.diff(begins)
    sizes = _numbers(waits.field("sizes"))
    indptr: Ints = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=indptr[1:])
    targets = indptr[begins].astype(np.int64)
    first = parties[:-1].astype(np.int32)
    names = ArrowNames(waits.field("names").flatten())
    missing_names = _missing_names(combined(snapshots.column("missing")))
    columns = WaitColumns(
        names=cast("tuple[PartyName, ...]", names),
        waiter=_numbers(waits.field("waiter")) + np.repeat(first, counts),
        needs=_numbers(waits.field("needs")),
        indptr=indptr,
        targets=_numbers(waits.field("targets")) + np.repeat(first, np.diff(targets)),
        deadline=_filled(waits.field("deadline"), counts, np.nan, np.float64),
        since=_filled(waits.field("since"), counts, np.nan, np.float64),
        number=_filled(waits.field("number"), counts, NO_NUMBER, np.int64),
        uncoloured=_filled(waits.field("uncoloured"), counts, False, np.bool_),
    )
    return DisjointUnion(
        columns=columns,
        parties=parties,
        waits=begins,
        targets=targets,
        missing=_missing(names, parties, missing_names),
        missing_names=missing_names,
    )


def _numbers(lists: pa.Array) -> Ints:
    numbers: Ints = lists.flatten().to_numpy(zero_copy_only=False)
    return numbers


def _filled(lists: pa.Array, counts: Int64s, unknown: Any, kind: type[Any]) -> NDArray[Any]:
    """Return one value per wait; a snapshot's list is null if none of its waits has a value."""
    values = lists.flatten()
    given = (pc.fill_null(values, unknown) if values.null_count else values).to_numpy(zero_copy_only=False)
    if len(given) == counts.sum():
        return np.asarray(given, kind)
    filled = np.full(counts.sum(), unknown, kind)
    filled[np.repeat(lists.is_valid().to_numpy(zero_copy_only=False), counts)] = given
    return filled


def _missing_names(lists: pa.Array) -> tuple[tuple[ProcessName, ...], ...]:
    begins = offsets(lists).tolist()
    flat = lists.flatten().field("instance").to_pylist() if begins[-1] else []
    return tuple(tuple(map(ProcessName, flat[low:high])) for low, high in pairwise(begins))


def _missing(names: ArrowNames, parties: Int64s, missing_names: Sequence[tuple[ProcessName, ...]]) -> Bools:
    missing = np.zeros(len(names), np.bool_)
    for at, members in enumerate(missing_names):
        if members:
            low, high = int(parties[at]), int(parties[at + 1])
            missing[low:high] = [process_of(PartyName(name)) in members for name in names.read(np.arange(low, high))]
    return missing
