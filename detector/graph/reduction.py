"""The reduction: frees every party that some sequence of grants can free; what is left is the remainder.

The rules (DESIGN.md section 5):

1. A party that waits for nothing is free.
2. A wait whose ``needs`` free parties are among its targets ends.
3. A party with no open wait left is free. Repeat.

Rules 2 and 3 only ever add, so the order does not matter, and a reduction that was run to its end can go on when more
becomes known to be free: :meth:`Reduction.further`. That is how one pass over the columns answers several questions, the
most pessimistic first.

The work: while a round frees many, count free targets over all open waits and drop what is settled (``_pull``); when a
round frees few, turn the open waits round and touch only what the newly free parties are waited for by
(:mod:`detector.graph.push`). Either way each target is looked at a bounded number of times.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from detector.graph.columns import Bools, Ints, WaitColumns
from detector.graph.push import Ledger

PULL_SHARE_MIN = 16
"""Go on counting over all open waits while a round settles at least one in this many of their targets."""


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
    while len(state.open):
        before = len(state.targets)
        hit = state.free[state.targets]
        hits = np.count_nonzero(hit)
        if hits == 0:
            return state
        state = _pull(state, hit)
        if PULL_SHARE_MIN * (before - len(state.targets)) < before:
            break
    if len(state.open):
        ledger = Ledger(free=state.free, owed=state.owed, waiter=state.waiter, short=state.short)
        ledger.push(state.indptr, state.targets)
        hit = state.free[state.targets]
        state = _kept(state, state.short > 0, hit)
    return state


def _pull(state: Reduction, hit: Bools) -> Reduction:
    """One round of rules 2 and 3 over all open waits; ``hit`` says which of their targets are free."""
    gained = np.zeros(len(hit) + 1, state.indptr.dtype)
    np.cumsum(hit, out=gained[1:])
    short = state.short - np.diff(gained[state.indptr])
    over = short <= 0
    waiters = state.waiter[over]
    np.subtract.at(state.owed, waiters, 1)
    state.free[waiters] |= state.owed[waiters] == 0
    return _kept(replace(state, short=short), ~over, hit)


def _kept(state: Reduction, keep: Bools, hit: Bools) -> Reduction:
    """The state with only the open waits in ``keep``, without the targets in ``hit``."""
    sizes = np.diff(state.indptr)
    stay = np.repeat(keep, sizes)
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
