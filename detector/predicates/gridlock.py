"""gridlock: some parties can be freed only by a deadline."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from detector.core.snapshot import Snapshot
from detector.graph.columns import WaitColumns
from detector.graph.reduction import Reduction
from detector.graph.reduction_bounds import ReductionBounds, bounds
from detector.predicates.deadlock import ended_holders, see_orphaned_resource, stuck_bounds
from detector.predicates.evidence.blocked_verdict import as_of, blocked_verdict, certain_graph
from stilltrue.model import Holds, Verdict


class Gridlock:
    """Holds when some parties cannot proceed until a deadline expires, whatever the others do, but can afterwards.

    Waits with a deadline count as blocking here. Deadlocked parties and those behind them count as free, so that only
    ``deadlock`` reports them. ``until`` is when the first party of the remainder can move; nothing changes before that.
    """

    name = "gridlock"
    treats_missing = True
    treats_forgotten = True
    reads_activity = False

    def evaluate(self, snapshot: Snapshot) -> Verdict:
        """Like ``deadlock``, with the time until which it holds."""
        found, deadlocked = held_up_bounds(snapshot)
        verdict = blocked_verdict(self.name, snapshot, found, certain_graph(snapshot, found))
        if verdict.holds is Holds.TRUE:
            return replace(verdict, until=first_move(snapshot.waits, found.certain))
        if verdict.holds is Holds.FALSE and (elsewhere := _see_deadlock(deadlocked) or see_orphaned_resource(snapshot)):
            text = f"no party was waiting only on a deadline {as_of(snapshot.ref)}; {elsewhere}"
            return replace(verdict, witness=replace(verdict.witness, text=text))
        return verdict


def _see_deadlock(deadlocked: int) -> str:
    parties = "1 party is" if deadlocked == 1 else f"{deadlocked} parties are"
    return f"{parties} deadlocked: see deadlock" if deadlocked else ""


def held_up_bounds(snapshot: Snapshot) -> tuple[ReductionBounds, int]:
    """The reductions that decide gridlock, in which deadlines block, and the number of deadlocked parties that are left out.

    The pessimistic views leave out only certainly deadlocked parties, the certain view also those that may be deadlocked.
    """
    waits, missing = snapshot.waits, snapshot.of_missing()
    stale = missing[waits.waiter]
    found = bounds(waits, ended=stale | ended_holders(waits), missing=missing, vouched=~waits.uncoloured)
    forever = stuck_bounds(snapshot)
    surely, perhaps = ~forever.certain.free & ~missing, ~forever.pessimistic.free & ~missing
    held_up = replace(
        found,
        pessimistic=found.pessimistic.further(released=surely),
        doubtful=found.doubtful.further(released=surely),
        certain=found.certain.further(released=perhaps),
    )
    return held_up, int(np.count_nonzero(surely))


def first_move(waits: WaitColumns, reduction: Reduction) -> float | None:
    """The earliest time (seconds since the epoch) at which a deadline frees a party of the remainder; None if there is none.

    The first party to move is freed by deadlines alone, so it moves when the last of its open waits has timed out.
    """
    ends = waits.deadline[reduction.open]
    moves = np.zeros(len(waits.names))
    np.maximum.at(moves, reduction.waiter, np.where(np.isnan(ends), np.inf, ends))
    earliest = moves[reduction.remainder()].min(initial=np.inf)
    return float(earliest) if np.isfinite(earliest) else None
