"""The reduction: frees every party that some sequence of grants can free; what is left is the remainder.

The rules (DESIGN.md section 5):

1. A party that waits for nothing is free.
2. A wait whose ``needs`` free parties are among its targets ends.
3. A party with no open wait left is free. Repeat.

Rules 2 and 3 only ever add, so the order does not matter, and a reduction that was run to its end can go on when more
becomes known to be free: :meth:`Reduction.further`. That is how one pass over the columns answers several questions, the
most pessimistic first.

The work has three gears. While a round ends many waits, count the free targets of all open waits, as one sparse product a
round (``_pull``). When a round ends few, leap along whatever must follow in any order (:mod:`detector.graph.closure`). What
is left then goes party by party (:mod:`detector.graph.push`). So a random graph takes a few passes, a chain of a million two
searches, and the worst case is linear.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from detector.graph.closure import leap
from detector.graph.columns import Bools, Ints, WaitColumns
from detector.graph.push import Ledger

PULL_SHARE_MIN = 32
"""Go on counting over all open waits while a round ends at least one in this many of them."""
COMPACT_WAITS_MIN = 20_000
"""With fewer open waits than this, leaving out those that are over costs more than it saves."""
SMALL_ROUNDS_MAX = 24
"""Rounds over so few waits that are cheaper than turning them round."""
PUSH_PARTIES_MIN = 4_000
PUSH_SHARE_MAX = 64
"""Handle so many, and one in so many of the waits' parties, one by one before trying a leap."""


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
        state = _kept(state, ~gone, np.zeros(len(self.targets), np.bool_))
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
    owed = np.bincount(waiter, minlength=parties).astype(columns.waiter.dtype, copy=False)
    if held is not None:
        owed += held
    return _run(
        Reduction(
            free=owed == 0, owed=owed, open=opened, waiter=waiter, short=columns.needs[opened], indptr=indptr, targets=targets
        )
    )


def _run(state: Reduction) -> Reduction:
    """Apply the rules to their end, in place for ``free`` and ``owed``."""
    state = _settled(_pull(state))
    patience = len(state.open) // PUSH_SHARE_MAX + PUSH_PARTIES_MIN
    while len(state.open) and state.free[state.targets].any():
        ledger = Ledger(free=state.free, owed=state.owed, waiter=state.waiter, short=state.short)
        uncounted = ledger.push(state.indptr, state.targets, patience)
        state = _kept(state, (state.short > 0) & ~state.free[state.waiter], (state.free & ~uncounted)[state.targets])
        if not uncounted.any():
            return state
        worth_it = leap(state.free, state.owed, state.waiter, state.short, state.indptr, state.targets)
        state = _settled(_kept(state, ~state.free[state.waiter], np.zeros(len(state.targets), np.bool_)))
        patience = patience if worth_it else len(state.free)
    return state


def _pull(state: Reduction) -> Reduction:
    """Rules 2 and 3 over all open waits at once, while a round ends many; targets that have come stay listed."""
    while len(state.open):
        come = _counter(state)
        small = len(state.open) < COMPACT_WAITS_MIN
        live = np.ones(len(state.open), np.bool_)
        left, rounds = len(state.open), 0
        while 2 * left > len(state.open) or small:
            over = come() >= state.short
            over &= live
            ended = int(np.count_nonzero(over))
            rounds += 1
            if ended == 0 or (PULL_SHARE_MIN * ended < left and not (small and rounds < SMALL_ROUNDS_MAX)):
                return _kept(state, live, np.zeros(len(state.targets), np.bool_)) if left < len(state.open) else state
            _end(state, over)
            live ^= over
            left -= ended
        state = _kept(state, live, np.zeros(len(state.targets), np.bool_))
    return state


def _settled(state: Reduction) -> Reduction:
    """One more round: the targets that have come are counted and dropped; those that this round frees are still listed."""
    if not len(state.open):
        return state
    hit = state.free[state.targets]
    if not hit.any():
        return state
    short = state.short - _counter(state)()
    over = short <= 0
    _end(state, over)
    return _kept(replace(state, short=short.astype(state.short.dtype, copy=False)), ~over, hit)


def _counter(state: Reduction) -> Callable[[], Ints]:
    """What counts how many targets of each open wait have come, now: one sparse product."""
    counts = np.int8 if int(np.diff(state.indptr).max()) < 127 else np.int32
    shape = (len(state.open), len(state.free))
    graph: Any = csr_array((np.ones(len(state.targets), counts), state.targets, state.indptr), shape=shape)
    return lambda: graph @ state.free.astype(counts)


def _end(state: Reduction, over: Bools) -> None:
    """The waits in ``over`` end: rule 3 for their waiters, in place."""
    waiters = state.waiter[over]
    if (waiters[1:] > waiters[:-1]).all():  # nobody twice: the fast way
        owed = state.owed[waiters] - 1
        state.owed[waiters] = owed
        state.free[waiters[owed <= 0]] = True
    else:
        np.subtract.at(state.owed, waiters, 1)
        state.free[waiters[state.owed[waiters] <= 0]] = True


def _kept(state: Reduction, keep: Bools, hit: Bools) -> Reduction:
    """The state with only the open waits in ``keep``, without the targets in ``hit``."""
    stay = np.repeat(keep, np.diff(state.indptr))
    stay &= ~hit
    left = np.zeros(len(state.targets) + 1, state.indptr.dtype)
    np.cumsum(stay, out=left[1:])
    ends = left[state.indptr[1:]][keep]
    return replace(
        state,
        open=state.open[keep],
        waiter=state.waiter[keep],
        short=state.short[keep],
        indptr=np.concatenate((left[:1], ends)),
        targets=state.targets[stay],
    )
