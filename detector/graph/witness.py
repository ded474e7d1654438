"""The evidence for a remainder: its core, and a smallest cycle or closed knot that a person can check.

A wait with n targets that needs k of them stays open while n - k + 1 of them are blocked. So a set of parties proves a deadlock
by itself (it is *closed*) if each has an open wait with at least n - k + 1 targets in the set. If that number is 1 the wait is
*solid*: one blocked target suffices. A cycle of solid waits is closed; for OR and k-of-n waits the smallest proof is a knot, a
closed set.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from detector.graph.columns import Floats, Ints
from detector.graph.cycles import smallest_cycle
from detector.graph.knots import smallest_knot
from detector.graph.remainder import RemainderGraph

QUOTED_WAITS_MAX = 64
"""Maximum number of waits quoted for a witness."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Evidence:
    """The core, the parties behind it and the witness, as indices into the columns' names; sorted, except a cycle."""

    core: Ints
    behind: Ints
    kind: str
    witness: Ints
    waits: Ints


def evidence(graph: RemainderGraph, since: Floats | None = None) -> Evidence:
    """Find the core, the parties behind it, and a smallest witness.

    Parameters
    ----------
    graph : the remainder, which must not be empty.
    since : (W,) when each wait of the columns began; NaN if unknown.

    Returns
    -------
    Evidence
        ``kind`` is ``"cycle"`` if solid waits form one that is no larger than the smallest knot found, else ``"knot"``.
        ``waits`` has the wait of each party (of the first ``QUOTED_WAITS_MAX``) that the witness rests on.

    Notes
    -----
    Finding the smallest closed set is NP-hard (it contains hitting set). Cycles are exact on small cores; knots are shrunk
    until no party can be removed, which is minimal but not always minimum.

    Examples
    --------
    >>> from detector.graph.columns import columns_of_lists
    >>> from detector.graph.reduction import reduce
    >>> from detector.graph.remainder import remainder_graph
    >>> waits = columns_of_lists(waiters=["a", "b", "c"], needs=[1] * 3, sizes=[1] * 3, among=["b", "a", "a"])
    >>> found = evidence(remainder_graph(waits, reduce(waits)))
    >>> found.kind, waits.named(found.witness), waits.named(found.behind)
    ('cycle', ('a', 'b'), ('c',))
    """
    cycle = smallest_cycle(graph.solid(), graph.cyclic)
    only_cycles = len(cycle) > 0 and bool((graph.proof == 1).all())
    knot = cycle[:0] if only_cycles else smallest_knot(graph, most=len(cycle))
    kind, members = ("cycle", cycle) if len(cycle) and (not len(knot) or len(cycle) <= len(knot)) else ("knot", knot)
    return Evidence(
        core=graph.parties[graph.cyclic],
        behind=graph.parties[~graph.cyclic],
        kind=kind,
        witness=graph.parties[members],
        waits=graph.waits[_quoted_waits(graph, members, kind, since)],
    )


def _quoted_waits(graph: RemainderGraph, members: Ints, kind: str, since: Floats | None) -> Ints:
    """For each of the first ``QUOTED_WAITS_MAX`` members of the witness, its oldest wait that the members keep open.

    A wait that the application declares is older than the one by which its code waits, and says more.
    """
    began = np.zeros(len(graph.waits)) if since is None else np.nan_to_num(since[graph.waits], nan=np.inf)
    shown = members[:QUOTED_WAITS_MAX]
    quoted = np.zeros(len(graph.parties), np.bool_)
    quoted[shown] = True
    among = np.zeros(len(graph.parties), np.bool_)
    among[members] = True
    after = dict(zip(members.tolist(), np.roll(members, -1).tolist(), strict=True))
    chosen: dict[int, int] = {}
    for wait in np.flatnonzero(quoted[graph.waiter]).tolist():
        waiter = int(graph.waiter[wait])
        targets = graph.targets_of(wait)
        if kind == "cycle":
            rests = graph.proof[wait] == 1 and after[waiter] in targets
        else:
            rests = np.count_nonzero(among[targets]) >= graph.proof[wait]
        if rests and (waiter not in chosen or began[wait] < began[chosen[waiter]]):
            chosen[waiter] = wait
    return np.asarray([chosen[member] for member in shown.tolist()], np.int64)
