"""Reduces a wait-for graph: frees every party that some sequence of grants can free; the others are the remainder.

The rules (docs/design.md section 5):

1. A party that waits for nothing is free.
2. A wait whose ``needs`` free parties are among its targets ends.
3. A party with no open wait left is free. Repeat.

Rules 2 and 3 are monotone, so their order does not matter, and a finished reduction can continue when more parties are known to
be free (:meth:`Reduction.further`). So one pass over the columns answers several questions, the most pessimistic first.

If all targets precede their waiters (or all follow them), there is no cycle, and every party is free. Otherwise there are three
phases. Sweep over all open waits (:mod:`detector.graph.sweep`) as long as sweeps free many parties, or their yield grows or
shrinks quickly. Otherwise paths are long: use graph searches (:mod:`detector.graph.reachability`). A worklist handles the rest
(:mod:`detector.graph.worklist`). So a random graph takes a few passes, a chain of a million parties takes one search, and the
worst case is linear.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from detector.graph.columns import Bools, Ints, WaitColumns
from detector.graph.open_waits import OpenWaits
from detector.graph.reachability import free_reachable
from detector.graph.sweep import sweep_all
from detector.graph.worklist import Worklist

SEARCHES_MAX = 8
"""Maximum number of searches before the worklist takes over."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Reduction:
    """The state of a reduction: the free parties, and the open waits with their targets.

    Attributes
    ----------
    free : (P,) the parties that are free.
    held : (P,) parties that are never freed, whatever they wait for; None if there are none.
    open : (O,) the open waits, as indices into the columns.
    waiter : (O,) the waiting party of each.
    short : (O,) how many more of its targets must be granted.
    indptr, targets : their targets that are not free, as CSR.
    """

    free: Bools
    held: Bools | None
    open: Ints
    waiter: Ints
    short: Ints
    indptr: Ints
    targets: Ints

    def remainder(self) -> Ints:
        """The parties that are not free, sorted."""
        return np.flatnonzero(~self.free)

    def further(self, *, ended: Bools | None = None, released: Bools | None = None) -> Reduction:
        """Continue with more waits known to have ended, or more parties known to be free whatever they wait for.

        Parameters
        ----------
        ended : (W,) waits of the columns that end by themselves.
        released : (P,) parties that are free from now on.

        Returns
        -------
        Reduction
            The finished reduction; its remainder is a subset of this one's.
        """
        rest = OpenWaits(
            open=self.open,
            waiter=self.waiter,
            short=self.short,
            indptr=self.indptr,
            targets=self.targets,
            parties=len(self.free),
        )
        held = self.held
        gone = np.zeros(len(self.open), np.bool_)
        if ended is not None:
            gone |= ended[self.open]
        if released is not None:
            gone |= released[self.waiter]
            held = None if held is None else held & ~released
        free, held, rest = initial(rest.only(~gone), held)
        return _settled(free, held, _run(free, held, rest))


def reduce(columns: WaitColumns, *, ended: Bools | None = None, held: Bools | None = None) -> Reduction:
    """Reduce a wait-for graph of any kind (AND, OR, AND-OR, k-of-n) to its remainder.

    Parameters
    ----------
    columns : the waits.
    ended : (W,) waits to treat as ended.
    held : (P,) parties that are not free though they wait for nothing (missing members, in the pessimistic view).

    Returns
    -------
    Reduction
        The finished reduction; ``remainder()`` returns the parties that no sequence of grants can ever free.

    Examples
    --------
    >>> from stilltrue.model import PartyName, Wait
    >>> a, b, c = map(PartyName, "abc")
    >>> ring = WaitColumns.of([Wait(waiter=a, among=(b,)), Wait(waiter=b, among=(a,)), Wait(waiter=c, among=(a,))])
    >>> ring.named(reduce(ring).remainder())
    ('a', 'b', 'c')

    Notes
    -----
    Linear in the number of targets. The remainder is the greatest fixed point of "not free", so it does not depend on the
    order.

    References
    ----------
    G. Bracha and S. Toueg, Distributed deadlock detection, Distributed Computing 2 (1987), section 3 (the static k-of-n
    model). R. C. Holt, Some deadlock properties of computer systems, Computing Surveys 4 (1972) (graph reductions).
    """
    free, held, rest = initial(_open_waits(columns, ended), held)
    return _settled(free, held, _run(free, held, rest))


def remainder(columns: WaitColumns, *, ended: Bools | None = None, held: Bools | None = None) -> Ints:
    """The parties that no sequence of grants can ever free, sorted. Like :func:`reduce`, but without the state to continue
    from.

    Parameters
    ----------
    columns, ended, held : as for :func:`reduce`.

    Examples
    --------
    >>> from stilltrue.model import PartyName, Wait
    >>> remainder(WaitColumns.of([Wait(waiter=PartyName("a"), among=(PartyName("a"),))])).tolist()
    [0]
    """
    free, held, rest = initial(_open_waits(columns, ended, positions=False), held)
    _run(free, held, rest)
    return np.flatnonzero(~free)


def _open_waits(columns: WaitColumns, ended: Bools | None, *, positions: bool = True) -> OpenWaits:
    rest = OpenWaits.of(columns, positions=positions)
    return rest if ended is None else rest.only(~ended)


def initial(rest: OpenWaits, held: Bools | None) -> tuple[Bools, Bools | None, OpenWaits]:
    """Apply rule 1, given all open waits; returns the free parties, the held ones (None if there are none), and the waits."""
    free = np.ones(rest.parties, np.bool_)
    rest.set_waiters(free, False)
    if held is None or not held.any():
        return free, None, rest
    free &= ~held
    return free, held, rest


def _run(free: Bools, held: Bools | None, rest: OpenWaits) -> OpenWaits:
    """Apply the rules to the end, updating ``free``; returns waits that include all those still open."""
    if not free.any():
        return rest  # nothing to start from
    if held is None and rest.one_way():
        free[:] = True
        return rest
    if sweep_all(free, held, rest):
        return rest
    return run_to_end(free, held, rest.without_ended(free))


def run_to_end(free: Bools, held: Bools | None, rest: OpenWaits) -> OpenWaits:
    """Apply the rules to the end when sweeps no longer pay off. ``rest``: the waits of parties that are not free."""
    for _ in range(SEARCHES_MAX):
        if not free_reachable(free, held, rest):
            break
        rest = rest.without_ended(free)
        if not len(rest) or sweep_all(free, held, rest):
            return rest
        rest = rest.without_ended(free)
    rest = rest.without_ended(free)
    worklist = Worklist(free=free, owed=_owed(held, rest), waiter=rest.waiter, short=rest.short.copy())
    worklist.run(rest.indptr, rest.targets)
    return rest


def _owed(held: Bools | None, rest: OpenWaits) -> Ints:
    """(P,) the number of waits of each party, plus one for held parties."""
    owed = rest.waits_of_each()
    if held is not None:
        owed += held
    return owed


def _settled(free: Bools, held: Bools | None, rest: OpenWaits) -> Reduction:
    """The finished reduction, given that all open waits are among ``rest``."""
    left = rest.settled(free)
    return Reduction(
        free=free,
        held=held,
        open=left.open,
        waiter=left.waiter,
        short=left.short,
        indptr=left.indptr,
        targets=left.targets,
    )
