"""The evidence for a remainder: which of it is core, and the smallest cycle or closed knot that a person can check.

A wait with n targets that needs k of them stays open while n - k + 1 of them are stuck: its *slack* plus one. So a set of
parties is a proof by itself (*closed*) when each of them has an open wait with at least n - k + 1 targets in the set.
Where that number is 1 the wait is *solid*: one stuck target suffices. A cycle of solid waits is closed; for OR and k-of-n
the smallest proof is a knot, a closed set.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from detector.graph.columns import Bools, Ints, WaitColumns
from detector.graph.cycles import smallest_cycle
from detector.graph.knots import smallest_knot
from detector.graph.reduction import Reduction

RESTING_MAX = 64
"""Waits that are looked up for a witness: more sentences than this nobody reads."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Stuck:
    """The remainder as a graph of its own: N parties, numbered anew, and the open waits among them.

    Attributes
    ----------
    parties : (N,) the remainder, sorted, as positions in the columns' names.
    waits : (O,) the open waits as positions in the columns; ``waiter``, ``indptr`` and ``targets`` follow them.
    waiter : (O,) who waits, as positions in ``parties``.
    proof : (O,) how many stuck targets keep the wait open: n - needs + 1.
    indptr, targets : each wait's stuck targets, as positions in ``parties``.
    """

    parties: Ints
    waits: Ints
    waiter: Ints
    proof: Ints
    indptr: Ints
    targets: Ints

    def graph(self, keep: Bools | None = None) -> csr_array:
        """The (N, N) matrix with an entry where a party waits for another; of the waits in ``keep`` only."""
        rows = np.repeat(self.waiter, np.diff(self.indptr))
        columns = self.targets
        if keep is not None:
            chosen = np.repeat(keep, np.diff(self.indptr))
            rows, columns = rows[chosen], columns[chosen]
        size = len(self.parties)
        matrix = csr_array((np.ones(len(rows), np.int8), (rows, columns)), shape=(size, size))
        matrix.sum_duplicates()  # scipy's search for strong components may never end on entries given twice
        matrix.data[:] = 1
        return matrix


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Evidence:
    """Core, behind and witness of a remainder, as positions in the columns' names, sorted (a cycle: in its order)."""

    core: Ints
    behind: Ints
    kind: str
    witness: Ints
    waits: Ints


def stuck(columns: WaitColumns, reduction: Reduction) -> Stuck:
    """The remainder of a finished reduction as a graph of its own; parties that are merely held are left out.

    A held party waits for nothing that is known, so what waits for it is kept as it is, without that target.
    """
    waiting = np.zeros(len(columns.names), np.bool_)
    waiting[reduction.waiter] = True
    parties = np.flatnonzero(waiting & ~reduction.free)
    place = np.full(len(columns.names), -1, columns.waiter.dtype)
    place[parties] = np.arange(len(parties))
    targets = place[reduction.targets]
    inside = targets >= 0
    left = np.zeros(len(targets) + 1, reduction.indptr.dtype)
    np.cumsum(inside, out=left[1:])
    return Stuck(
        parties=parties,
        waits=reduction.open,
        waiter=place[reduction.waiter],
        proof=(columns.sizes() - columns.needs + 1)[reduction.open],
        indptr=left[reduction.indptr],
        targets=targets[inside],
    )


def evidence(columns: WaitColumns, reduction: Reduction) -> Evidence:
    """Core, behind and the smallest witness found for the remainder of ``reduction``, which is not empty.

    Returns
    -------
    Evidence
        ``kind`` is ``"cycle"`` when solid waits close one that is no larger than the smallest knot found, else ``"knot"``.
        ``waits`` are the waits that the witness rests on, one for each of its parties (its first ``RESTING_MAX``).

    Notes
    -----
    Finding the smallest closed set is NP-hard (it contains hitting set); cycles are exact on small cores, knots are
    shrunk until no party can be left out, which is minimal, not always minimum.
    """
    graph = stuck(columns, reduction)
    matrix = graph.graph()
    _, labels = connected_components(matrix, directed=True, connection="strong")
    on_cycle = (np.bincount(labels)[labels] > 1) | (matrix.diagonal() > 0)
    solid = graph.proof == 1
    cycle = smallest_cycle(graph.graph(solid), on_cycle)
    knot = smallest_knot(graph, matrix, labels, most=len(cycle))
    kind, members = ("cycle", cycle) if len(cycle) and (not len(knot) or len(cycle) <= len(knot)) else ("knot", knot)
    return Evidence(
        core=graph.parties[on_cycle],
        behind=graph.parties[~on_cycle],
        kind=kind,
        witness=graph.parties[members],
        waits=graph.waits[_resting(graph, members, kind)],
    )


def _resting(graph: Stuck, members: Ints, kind: str) -> Ints:
    """For each member of the witness (the first ``RESTING_MAX``) the first of its waits that the members keep open."""
    shown = members[:RESTING_MAX]
    telling = np.zeros(len(graph.parties), np.bool_)
    telling[shown] = True
    among = np.zeros(len(graph.parties), np.bool_)
    among[members] = True
    after = dict(zip(members.tolist(), np.roll(members, -1).tolist(), strict=True))
    chosen: dict[int, int] = {}
    for wait in np.flatnonzero(telling[graph.waiter]).tolist():
        waiter = int(graph.waiter[wait])
        targets = graph.targets[graph.indptr[wait] : graph.indptr[wait + 1]]
        if kind == "cycle":
            rests = graph.proof[wait] == 1 and after[waiter] in targets
        else:
            rests = np.count_nonzero(among[targets]) >= graph.proof[wait]
        if rests:
            chosen.setdefault(waiter, wait)
    return np.asarray([chosen[member] for member in shown.tolist()], np.int64)
