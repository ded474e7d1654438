"""The reduction: frees every party that some sequence of grants can free; what is left is the remainder.

The rules (DESIGN.md section 5):

1. A party that waits for nothing is free.
2. A wait whose ``needs`` free parties are among its targets ends.
3. A party with no open wait left is free. Repeat.

Rules 2 and 3 only ever add, so the order does not matter, and a reduction that was run to its end can go on when more
becomes known to be free: :meth:`Reduction.further`. That is how one pass over the columns answers several questions, the
most pessimistic first.

The work has three gears. Count the free targets of all open waits, as one sparse product a round, while a round ends many or
the rounds die out or grow quickly (``_pull``). When they do neither, ways are long: leap along whatever must follow in any
order (:mod:`detector.graph.closure`). What no leap frees goes party by party (:mod:`detector.graph.push`). So a random graph
takes a few passes, a chain of a million one search, and the worst case is linear.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from detector.graph.closure import leap
from detector.graph.columns import Bools, Ints, WaitColumns
from detector.graph.push import Ledger

PULL_SHARE_MIN = 32
"""A round that ends fewer than one in this many of the open waits ends few."""
FEW_ROUNDS_MAX = 2
"""So many rounds that end few, and about as many as the round before, mean long ways."""
ROUNDS_MAX = 64
"""Rounds between two compactions, whatever they end: what bounds the passes over memory."""
COMPACT_WAITS_MIN = 20_000
"""With fewer open waits than this, leaving out those that are over costs more than it saves."""
LEAPS_MAX = 8
"""So many leaps, then party by party: what bounds the searches."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Reduction:
    """Where a reduction has come to: who is free, and which waits are open and for whom.

    Attributes
    ----------
    free : (P,) the parties that are free.
    owed : (P,) open waits of each party, plus one for a party that is held.
    open : (O,) the open waits, as positions in the columns.
    waiter : (O,) who waits in each of them.
    short : (O,) how many more targets must come.
    indptr, targets : the targets of each open wait that are not free, as CSR.
    """

    free: Bools
    owed: Ints
    open: Ints
    waiter: Ints
    short: Ints
    indptr: Ints
    targets: Ints

    def remainder(self) -> Ints:
        """The parties that are not free, sorted."""
        return np.flatnonzero(~self.free)

    def further(self, *, ended: Bools | None = None, released: Bools | None = None) -> Reduction:
        """Go on with more known: waits that have ended, and parties that are free whatever they wait for.

        Parameters
        ----------
        ended : (W,) waits of the columns that end by themselves.
        released : (P,) parties that are free from now on.
        """
        free, owed = self.free.copy(), self.owed.copy()
        state = replace(self, free=free, owed=owed, short=self.short.copy())
        gone = np.zeros(len(self.open), np.bool_)
        if ended is not None:
            gone |= ended[self.open]
            np.subtract.at(owed, self.waiter[gone], 1)
        if released is not None:
            gone |= released[self.waiter]
            owed[released] = 0
        state = _chosen(state, ~gone)
        free |= owed == 0
        return _run(state)


def reduce(columns: WaitColumns, *, ended: Bools | None = None, held: Bools | None = None) -> Reduction:
    """Reduce a wait graph of any kind (AND, OR, AND-OR, k-of-n) to its remainder.

    Parameters
    ----------
    columns : the waits.
    ended : (W,) waits to take as over already.
    held : (P,) parties that are not free though they wait for nothing (missing members, seen pessimistically).

    Returns
    -------
    Reduction
        Run to its end; ``remainder()`` gives the parties that no sequence of grants can ever free.

    Examples
    --------
    >>> from stilltrue.model import PartyName, Wait
    >>> a, b, c = map(PartyName, "abc")
    >>> ring = WaitColumns.of([Wait(waiter=a, among=(b,)), Wait(waiter=b, among=(a,)), Wait(waiter=c, among=(a,))])
    >>> ring.named(reduce(ring).remainder())
    ('a', 'b', 'c')

    Notes
    -----
    Linear in the number of targets. Freed in any order, the result is the same: the greatest fixed point of "not free".

    References
    ----------
    G. Bracha and S. Toueg, Distributed deadlock detection, Distributed Computing 2 (1987), section 3 (the static k-of-n
    model). R. C. Holt, Some deadlock properties of computer systems, Computing Surveys 4 (1972) (graph reductions).
    """
    parties = len(columns.names)
    if ended is None or not ended.any():
        opened, indptr, targets = np.arange(len(columns), dtype=columns.waiter.dtype), columns.indptr, columns.targets
    else:
        opened = np.flatnonzero(~ended).astype(columns.waiter.dtype)
        stay = np.repeat(~ended, columns.sizes())
        targets = columns.targets[stay]
        indptr = np.zeros(len(opened) + 1, columns.indptr.dtype)
        np.cumsum(columns.sizes()[opened], out=indptr[1:])
    waiter = columns.waiter[opened]
    owed = _waits_of_each(waiter, parties)
    if held is not None:
        owed += held
    return _run(
        Reduction(
            free=owed == 0, owed=owed, open=opened, waiter=waiter, short=columns.needs[opened], indptr=indptr, targets=targets
        )
    )


def _waits_of_each(waiter: Ints, parties: int) -> Ints:
    """(P,) how many of the waits are whose; ``waiter`` is sorted."""
    if (waiter[1:] > waiter[:-1]).all():  # nobody twice: the fast way
        owed = np.zeros(parties, waiter.dtype)
        owed[waiter] = 1
        return owed
    return np.bincount(waiter, minlength=parties).astype(waiter.dtype, copy=False)


def _run(state: Reduction) -> Reduction:
    """Apply the rules to their end, in place for ``free`` and ``owed``."""
    leaps, worth_it = 0, True
    while worth_it:
        state, finished = _pull(state)
        if finished:
            return state
        worth_it = leaps < LEAPS_MAX and leap(state.free, state.owed, state.waiter, state.short, state.indptr, state.targets)
        leaps += 1
        state = _chosen(state, ~state.free[state.waiter])
    ledger = Ledger(free=state.free, owed=state.owed, waiter=state.waiter, short=state.short)
    ledger.push(state.indptr, state.targets)
    keep = (state.short > 0) & ~state.free[state.waiter]
    stay = np.repeat(keep, np.diff(state.indptr))
    stay &= ~state.free[state.targets]
    left = np.zeros(len(state.targets) + 1, state.indptr.dtype)
    np.cumsum(stay, out=left[1:])
    return _kept(state, keep, left[state.indptr[1:]][keep], stay)


def _pull(state: Reduction) -> tuple[Reduction, bool]:
    """Rules 2 and 3 over all open waits at once; whether that was the end.

    If it was not, the free parties among the targets that are left have not been counted in ``short``.
    """
    few = last = 0
    single = bool(state.owed.max(initial=0) <= 1)  # nobody waits twice: who has a wait that is over is free
    while size := len(state.open):
        graph, short = _counted(state)
        over = np.zeros(size, np.bool_)
        left, rounds = size, 0
        while left and (2 * left > size or size < COMPACT_WAITS_MIN):
            come = graph @ state.free.view(np.int8)
            before, over = over, come >= short
            ended = int(np.count_nonzero(over)) - (size - left)
            steady = PULL_SHARE_MIN * ended < left and 4 * last < 5 * ended < 10 * last
            few, last, rounds = few + steady, ended, rounds + 1
            fresh = over ^ before
            if ended == 0:
                return _settled(state, come, over, fresh), True
            if few >= FEW_ROUNDS_MAX or rounds >= ROUNDS_MAX:
                return (state if single else _settled(state, come, over, fresh)), False
            _end(state, fresh, single)
            left -= ended
        state = _chosen(state, ~over)
    return state, True


def _counted(state: Reduction) -> tuple[Any, Ints]:
    """The open waits as a matrix whose product with ``free`` counts the targets that have come, and how many must."""
    most = int(np.diff(state.indptr).max())
    counts = np.int8 if most < 127 else np.int32  # a byte is a quarter of the memory
    shape = (len(state.open), len(state.free))
    graph: Any = csr_array((np.ones(len(state.targets), counts), state.targets, state.indptr), shape=shape)
    return graph, np.minimum(state.short, most + 1).astype(counts)


def _settled(state: Reduction, come: Ints, over: Bools, fresh: Bools) -> Reduction:
    """The open waits without those in ``over`` and without the ``come`` targets; then those in ``fresh`` end."""
    if not come.any():
        return state
    sizes = np.diff(state.indptr)
    keep = ~over
    stay = np.repeat(keep, sizes)
    stay &= ~state.free.take(state.targets)
    sizes -= come
    _end(state, fresh, single=False)
    ends = np.cumsum(sizes[keep], dtype=sizes.dtype)
    return _kept(replace(state, short=state.short - come), keep, ends, stay)


def _end(state: Reduction, over: Bools, single: bool) -> None:
    """The waits in ``over`` end: rule 3 for their waiters, in place; ``single`` says that none of them has another."""
    waiters = state.waiter.take(np.flatnonzero(over))
    if single:
        state.owed[waiters] = 0
        state.free[waiters] = True
    elif (waiters[1:] > waiters[:-1]).all():  # nobody twice: the fast way
        owed = state.owed[waiters] - 1
        state.owed[waiters] = owed
        state.free[waiters[owed <= 0]] = True
    else:
        np.subtract.at(state.owed, waiters, 1)
        state.free[waiters[state.owed[waiters] <= 0]] = True


def _chosen(state: Reduction, keep: Bools) -> Reduction:
    """The state with only the open waits in ``keep``, with all their targets."""
    rows = np.flatnonzero(keep)
    if len(rows) == len(keep):
        return state
    begins = state.indptr[rows]
    sizes = state.indptr[1:][rows] - begins
    ends = np.cumsum(sizes, dtype=sizes.dtype)
    at = np.repeat(begins - (ends - sizes), sizes)
    at += np.arange(len(at), dtype=at.dtype)
    return replace(
        state,
        open=state.open[rows],
        waiter=state.waiter[rows],
        short=state.short[rows],
        indptr=np.concatenate((state.indptr[:1], ends)) if len(rows) else state.indptr[:1],
        targets=state.targets.take(at),
    )


def _kept(state: Reduction, keep: Bools, ends: Ints, stay: Bools) -> Reduction:
    """The state with only the open waits in ``keep`` and the targets in ``stay``, of which each wait's end at ``ends``."""
    return replace(
        state,
        open=state.open[keep],
        waiter=state.waiter[keep],
        short=state.short[keep],
        indptr=np.concatenate((state.indptr[:1], ends)),
        targets=state.targets[stay],
    )
