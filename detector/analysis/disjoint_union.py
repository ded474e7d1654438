"""Many snapshots as one wait-for graph: their parties get disjoint numbers, so one reduction serves them all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, cast, overload

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from detector.archive.rows.list_columns import Whole, offsets, whole
from detector.graph.columns import NO_NUMBER, Bools, Ints, WaitColumns
from detector.graph.partial import ReductionBounds
from detector.graph.reduction import Reduction
from stilltrue.model import PartyName, ProcessName, process_of

_NONE = np.empty(0, np.int32)


class ArrowNames(Sequence[str]):
    """Names that stay in Arrow until one is read: of a healthy snapshot at most a dozen are."""

    def __init__(self, names: pa.Array) -> None:
        """``names``: an array of strings."""
        self._names = names

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
class Stacked:
    """S snapshots' waits over P parties in all.

    Attributes
    ----------
    columns : all waits as one graph; names are not unique across snapshots, numbers are.
    parties, waits, targets : (S + 1,) where each snapshot's parties, waits and targets begin.
    missing : (P,) the parties of members that did not report.
    missing_names : S tuples, the members that did not report.
    """

    columns: WaitColumns
    parties: Whole
    waits: Whole
    targets: Whole
    missing: Bools
    missing_names: tuple[tuple[ProcessName, ...], ...]

    def __len__(self) -> int:
        return len(self.parties) - 1

    def part(self, at: int) -> WaitColumns:
        """The waits of one snapshot, with its own numbers and without the texts."""
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

    def none_left(self, at: int) -> ReductionBounds:
        """The bounds of a snapshot without a remainder in any view."""
        first, last = int(self.parties[at]), int(self.parties[at + 1])
        missing = self.missing[first:last]
        done = Reduction(
            free=~missing,
            held=missing,
            open=_NONE,
            waiter=_NONE,
            short=_NONE,
            indptr=np.zeros(1, np.int32),
            targets=_NONE,
        )
        return ReductionBounds(missing=missing, pessimistic=done, doubtful=done, certain=done)


def stacked(snapshots: pa.Table) -> Stacked:
    """Stack the rows of ``snapshots`` (its columns ``waits`` and ``missing``), in their order."""
    waits = whole(snapshots.column("waits"))
    parties = offsets(waits.field("names"))
    begins = offsets(waits.field("waiter"))
    counts = np.diff(begins)
    sizes = _numbers(waits.field("sizes"))
    indptr: Ints = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=indptr[1:])
    targets = indptr[begins].astype(np.int64)
    first = parties[:-1].astype(np.int32)
    names = ArrowNames(waits.field("names").flatten())
    missing_names = _missing_names(whole(snapshots.column("missing")))
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
    return Stacked(
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


def _filled(lists: pa.Array, counts: Whole, unknown: Any, kind: type[Any]) -> NDArray[Any]:
    """One value a wait, of lists that are null where no wait of the snapshot has any."""
    values = lists.flatten()
    told = (pc.fill_null(values, unknown) if values.null_count else values).to_numpy(zero_copy_only=False)
    if len(told) == counts.sum():
        return np.asarray(told, kind)
    filled = np.full(counts.sum(), unknown, kind)
    filled[np.repeat(lists.is_valid().to_numpy(zero_copy_only=False), counts)] = told
    return filled


def _missing_names(lists: pa.Array) -> tuple[tuple[ProcessName, ...], ...]:
    begins = offsets(lists).tolist()
    flat = lists.flatten().field("instance").to_pylist() if begins[-1] else []
    return tuple(tuple(map(ProcessName, flat[low:high])) for low, high in pairwise(begins))


def _missing(names: ArrowNames, parties: Whole, missing_names: Sequence[tuple[ProcessName, ...]]) -> Bools:
    missing = np.zeros(len(names), np.bool_)
    for at, gone in enumerate(missing_names):
        if gone:
            low, high = int(parties[at]), int(parties[at + 1])
            missing[low:high] = [process_of(PartyName(name)) in gone for name in names[low:high]]
    return missing
