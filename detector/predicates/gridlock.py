"""gridlock: parties that nothing but a deadline can free, and until when."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from detector.core.snapshot import Snapshot
from detector.graph.columns import WaitColumns
from detector.graph.confirm import confirmed
from detector.graph.partial import bounds
from detector.graph.reduction import Reduction
from detector.predicates.blocked import blocked_verdict
from stilltrue.model import Holds, Verdict


class Gridlock:
    """Holds when some parties cannot go on before a deadline fires, whatever anybody does.

    A deadline counts as blocking here. ``until`` is when the first party of the remainder can move: before it nothing
    changes. It is null when no deadline can move any of them; then this is a ``deadlock`` too.
    """

    name = "gridlock"
    treats_missing = True

    def evaluate(self, snapshot: Snapshot) -> Verdict:
        """As ``deadlock``, with the time until which it holds."""
        waits, missing = snapshot.waits, snapshot.of_missing()
        stale = missing[waits.waiter]
        found = bounds(waits, ended=stale, missing=missing, vouched=confirmed(waits, snapshot.previous, stale))
        verdict = blocked_verdict(self.name, snapshot, found)
        return replace(verdict, until=first_move(waits, found.certain)) if verdict.holds is Holds.TRUE else verdict


def first_move(waits: WaitColumns, reduction: Reduction) -> float | None:
    """The earliest time (seconds since the epoch) at which a deadline frees a party of the remainder; None: never.

    The first party to be freed is freed by deadlines alone, so it moves when the last of its open waits has timed out.
    """
    ends = waits.deadline[reduction.open]
    moves = np.zeros(len(waits.names))
    np.maximum.at(moves, reduction.waiter, np.where(np.isnan(ends), np.inf, ends))
    earliest = moves[reduction.remainder()].min(initial=np.inf)
    return float(earliest) if np.isfinite(earliest) else None
