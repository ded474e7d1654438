"""Wait-for graphs as columns: numpy arrays of party numbers, with the names kept separately and no Python object per edge."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stilltrue.model import PartyName, Wait, WaitNumber

Ints = NDArray[np.integer[Any]]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

NO_NUMBER = -1


class WaitError(ValueError):
    """An invalid wait: ``index`` is its position in the input, ``key`` the offending key, and ``text`` the reason."""

    def __init__(self, index: int, key: str, text: str) -> None:
        super().__init__(f"wait {index}: {key}: {text}")
        self.index = index
        self.key = key
        self.text = text


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, weakref_slot=True)
class WaitColumns:
    """The waits of one snapshot, W of them over P parties with T targets in all, in canonical order.

    A party is an index into ``names`` (sorted, distinct). Waits are sorted by waiter, then by their other values; the targets
    of one wait are sorted and distinct. So the same waits in any order give the same columns.

    Attributes
    ----------
    names : the P names.
    waiter : (W,) the waiting party.
    needs : (W,) how many of its targets must be granted; 1 <= needs <= number of targets.
    indptr : (W + 1,) where each wait's targets begin in ``targets``.
    targets : (T,) the parties waited for.
    deadline, since : (W,) seconds since the epoch; NaN if unset.
    number : (W,) the wait's number within its process; -1 if unset.
    uncoloured : (W,) whether no stamp vouches for the wait.
    what : W texts, or () if no wait has one.

    Notes
    -----
    Integers are int32 if they fit, else int64: half the memory means half the time.

    Examples
    --------
    >>> columns = WaitColumns.of([Wait(waiter=PartyName("b"), among=(PartyName("a"), PartyName("a")))])
    >>> columns.names, columns.targets.tolist()
    (('a', 'b'), [0])
    """

    names: tuple[PartyName, ...]
    waiter: Ints
    needs: Ints
    indptr: Ints
    targets: Ints
    deadline: Floats
    since: Floats
    number: NDArray[np.int64]
    uncoloured: Bools
    what: tuple[str, ...] = ()

    @classmethod
    def of(cls, waits: Iterable[Wait]) -> WaitColumns:
        """Build columns from waits in any order.

        Parameters
        ----------
        waits : the waits, in any order.

        Raises
        ------
        WaitError
            When ``needs`` is not between 1 and the number of distinct names in ``among``.
        """
        rows = list(waits)
        return columns_of_lists(
            waiters=[row.waiter for row in rows],
            needs=[row.needs for row in rows],
            sizes=[len(row.among) for row in rows],
            among=list(chain.from_iterable(row.among for row in rows)),
            deadline=[np.nan if row.deadline is None else row.deadline for row in rows],
            since=[np.nan if row.since is None else row.since for row in rows],
            number=[NO_NUMBER if row.number is None else row.number for row in rows],
            uncoloured=[row.uncoloured for row in rows],
            what=[row.what for row in rows],
        )

    def __len__(self) -> int:
        return len(self.waiter)

    def __iter__(self) -> Iterator[Wait]:
        return self.waits()

    def waits(self) -> Iterator[Wait]:
        """The waits as values, in canonical order."""
        return (self.wait(index) for index in range(len(self)))

    def wait(self, index: int) -> Wait:
        """The wait at ``index`` as a value."""
        deadline, since = float(self.deadline[index]), float(self.since[index])
        number = int(self.number[index])
        return Wait(
            waiter=self.names[self.waiter[index]],
            among=self.named(self.targets_of(index)),
            needs=int(self.needs[index]),
            deadline=None if math.isnan(deadline) else deadline,
            since=None if math.isnan(since) else since,
            number=None if number == NO_NUMBER else WaitNumber(number),
            uncoloured=bool(self.uncoloured[index]),
            what=self.what[index] if self.what else "",
        )

    def only(self, keep: Bools) -> WaitColumns:
        """Select the waits in ``keep`` (W,) and the names that they mention."""
        if keep.all():
            return self
        waits = np.flatnonzero(keep)
        indptr, targets = _gather(waits, self.sizes(), self.targets[np.repeat(keep, self.sizes())])
        named = np.unique(np.concatenate((self.waiter[waits], targets)))
        position = np.zeros(len(self.names), self.targets.dtype)
        position[named] = np.arange(len(named))
        return WaitColumns(
            names=self.named(named),
            waiter=position[self.waiter[waits]],
            needs=self.needs[waits],
            indptr=indptr,
            targets=position[targets],
            deadline=self.deadline[waits],
            since=self.since[waits],
            number=self.number[waits],
            uncoloured=self.uncoloured[waits],
            what=tuple(self.what[wait] for wait in waits.tolist()) if self.what else (),
        )

    def targets_of(self, index: int) -> Ints:
        """The targets of the wait at ``index``."""
        return self.targets[self.indptr[index] : self.indptr[index + 1]]

    def named(self, parties: Ints) -> tuple[PartyName, ...]:
        """The names of ``parties``, in the given order."""
        return tuple(map(self.names.__getitem__, parties.tolist()))

    def sizes(self) -> Ints:
        """(W,) the number of targets of each wait."""
        return np.diff(self.indptr)

    def passing(self, missing: Bools) -> Bools:
        """(W,) mask of the waits that no deadlock can rest on: with a deadline, or of ``missing`` (P,) parties."""
        stale: Bools = missing[self.waiter]
        return ~np.isnan(self.deadline) | stale


def columns_of_lists(
    *,
    waiters: Sequence[str],
    needs: Sequence[int],
    sizes: Sequence[int],
    among: Sequence[str],
    deadline: Sequence[float] = (),
    since: Sequence[float] = (),
    number: Sequence[int] = (),
    uncoloured: Sequence[bool] = (),
    what: Sequence[str] = (),
) -> WaitColumns:
    """Build columns from parallel lists, without an object per wait; the fastest constructor.

    Parameters
    ----------
    waiters, needs, sizes : one entry per wait; ``sizes`` gives the number of entries of ``among`` that belong to each wait.
    among : the targets of all waits, concatenated; a name repeated within a wait counts once.
    deadline, since, number, uncoloured, what : one entry per wait, or empty if no wait has a value.

    Returns
    -------
    WaitColumns
        In canonical order, regardless of the order of the input.

    Raises
    ------
    WaitError
        As for :meth:`WaitColumns.of`.

    Examples
    --------
    >>> columns = columns_of_lists(waiters=["b", "a"], needs=[1, 2], sizes=[1, 2], among=["a", "b", "c"])
    >>> columns.names, columns.waiter.tolist(), columns.targets.tolist()
    (('a', 'b', 'c'), [0, 1], [1, 2, 0])
    """
    names = sorted({*waiters, *among})
    dtype = np.int32 if max(len(names), len(among), len(waiters)) < 2**31 - 1 else np.int64
    ids = {name: index for index, name in enumerate(names)}
    count = len(waiters)
    waiter: Ints = np.fromiter(map(ids.__getitem__, waiters), dtype, count)
    rows: Ints = np.repeat(np.arange(count, dtype=dtype), sizes)
    targets: Ints = np.fromiter(map(ids.__getitem__, among), dtype, len(among))
    rows, targets = _distinct(rows, targets, len(names))
    distinct: Ints = np.bincount(rows, minlength=count).astype(dtype, copy=False)
    needed = _checked(needs, distinct, dtype)
    order = _canonical(waiter, (needs, deadline, since, number, uncoloured, what), rows, targets)
    indptr, targets = _gather(order, distinct, targets)
    return WaitColumns(
        names=tuple(map(PartyName, names)),
        waiter=waiter[order],
        needs=needed[order],
        indptr=indptr,
        targets=targets,
        deadline=_floats(deadline, count)[order],
        since=_floats(since, count)[order],
        number=(np.asarray(number, np.int64) if len(number) else np.full(count, NO_NUMBER, np.int64))[order],
        uncoloured=(np.asarray(uncoloured, np.bool_) if len(uncoloured) else np.zeros(count, np.bool_))[order],
        what=tuple(map(what.__getitem__, order.tolist())) if any(what) else (),
    )


def _floats(values: Sequence[float], count: int) -> Floats:
    return np.asarray(values, np.float64) if len(values) else np.full(count, np.nan)


def _distinct(rows: Ints, targets: Ints, parties: int) -> tuple[Ints, Ints]:
    """The (row, target) pairs, sorted and without duplicates; ``rows`` is already sorted."""
    inside = rows[1:] == rows[:-1]
    if bool(np.all(targets[1:][inside] > targets[:-1][inside])):
        return rows, targets
    width = max(parties, 1)
    keys = np.sort(rows.astype(np.int64) * width + targets)
    keys = keys[np.concatenate(([True], keys[1:] != keys[:-1]))]
    return (keys // width).astype(rows.dtype), (keys % width).astype(targets.dtype)


def _checked(needs: Sequence[int], distinct: Ints, dtype: type[np.int32] | type[np.int64]) -> Ints:
    """``needs`` as a column; raises :exc:`WaitError` for the first invalid wait."""
    try:
        column = np.asarray(needs, np.int64)
    except OverflowError:
        column = np.asarray([min(max(need, -1), 2**62) for need in needs], np.int64)
    invalid = np.flatnonzero((column < 1) | (column > distinct))
    if len(invalid):
        index = int(invalid[0])
        most = int(distinct[index])
        if most == 0:
            raise WaitError(index, "among", "must name at least one party")
        raise WaitError(index, "needs", f"must be between 1 and {most}, the number of different names in among")
    return column.astype(dtype)


def _canonical(waiter: Ints, values: tuple[Sequence[Any], ...], rows: Ints, targets: Ints) -> Ints:
    """The canonical order of the waits: by waiter, with ties broken by their other values."""
    if bool(np.all(waiter[1:] > waiter[:-1])):
        return np.arange(len(waiter))
    order = np.argsort(waiter, kind="stable")
    ordered = waiter[order]
    tied = np.flatnonzero(ordered[1:] == ordered[:-1])
    if not len(tied):
        return order
    slots = np.unique(np.concatenate((tied, tied + 1)))
    begins = np.searchsorted(rows, np.arange(len(waiter) + 1))

    def content(wait: int) -> tuple[Any, ...]:
        own = [_comparable(column[wait]) for column in values if len(column)]
        return int(waiter[wait]), targets[begins[wait] : begins[wait + 1]].tolist(), own

    order[slots] = sorted(order[slots].tolist(), key=content)
    return order


def _comparable(value: Any) -> tuple[bool, Any]:
    """A sort key under which NaN equals itself and sorts last."""
    return (True, 0) if isinstance(value, float) and math.isnan(value) else (False, value)


def _gather(order: Ints, sizes: Ints, targets: Ints) -> tuple[Ints, Ints]:
    """Take the rows of a CSR structure in ``order``."""
    begins = np.cumsum(sizes) - sizes
    indptr = np.zeros(len(order) + 1, targets.dtype)
    np.cumsum(sizes[order], out=indptr[1:])
    if bool(np.all(order[1:] > order[:-1])):
        return indptr, targets
    shift = np.repeat(begins[order] - indptr[:-1], sizes[order])
    return indptr, targets[shift + np.arange(len(targets))]
