"""orphaned-resource: parties that wait for what a holder has left behind which has ended."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from detector.core.snapshot import Snapshot
from detector.graph.columns import Bools, WaitColumns
from detector.graph.partial import ReductionBounds, bounds
from detector.graph.reduction import Reduction
from detector.predicates.deadlock import ended_holders, stuck_bounds
from detector.predicates.evidence.blocked import as_of, blocked_verdict, certain_graph
from detector.predicates.evidence.explain import sentence, shortened
from stilltrue.model import Holds, PartyName, Verdict, Witness, has_ended


class OrphanedResource:
    """Holds when some parties wait without a deadline for a holder that has ended and has not given back what it held.

    Such a holder is a party whose name, after that of its process, begins with ``ended:``, and which waits for itself: only
    its own process says so, from positive evidence. Deadlocked parties and those behind them count as free: ``deadlock``
    reports them.
    """

    name = "orphaned-resource"
    treats_missing = True
    treats_forgotten = True
    reads_activity = False

    def evaluate(self, snapshot: Snapshot) -> Verdict:
        """TRUE with those that wait for an ended holder (the core), and those behind them."""
        found = orphaned_bounds(snapshot)
        verdict = blocked_verdict(self.name, snapshot, found, certain_graph(snapshot, found))
        if verdict.holds is Holds.TRUE:
            return _told(verdict, snapshot)
        if verdict.holds is Holds.FALSE:  # that a deadlocked party could move would be untrue
            text = f"no party was stuck behind a holder that has ended {as_of(snapshot)}"
            return replace(verdict, witness=replace(verdict.witness, text=text))
        return verdict


def orphaned_bounds(snapshot: Snapshot) -> ReductionBounds:
    """The reductions that decide it: as for deadlock, but ended holders never move, and the deadlocked are set aside."""
    waits, missing = snapshot.waits, snapshot.of_missing()
    found = bounds(waits, ended=waits.passing(missing), missing=missing, vouched=~waits.uncoloured)
    forever = stuck_bounds(snapshot)
    surely, perhaps = ~forever.certain.free & ~missing, ~forever.pessimistic.free & ~missing
    holders = np.zeros(len(waits.names), np.bool_)
    holders[waits.waiter[ended_holders(waits)]] = True

    def of(reduction: Reduction, aside: Bools) -> Reduction:
        """Leaves the deadlocked parties out; a holder that no party waits for is not reported."""
        left = reduction.further(released=aside)
        return left if (~left.free & ~holders & ~missing).any() else left.further(released=holders)

    return replace(
        found,
        pessimistic=of(found.pessimistic, surely),
        doubtful=of(found.doubtful, surely),
        certain=of(found.certain, perhaps),
    )


def _told(verdict: Verdict, snapshot: Snapshot) -> Verdict:
    """The verdict about those that wait: the holders that have ended are its witness."""
    left = tuple(party for party in verdict.remainder if not has_ended(party))
    direct = _waiting_for(snapshot.waits, frozenset(party for party in verdict.remainder if has_ended(party)))
    core = tuple(party for party in left if party in direct)
    holders = tuple(party for party in verdict.remainder if has_ended(party))
    text = f"{', '.join(shortened(holders))} will never give back what {', '.join(shortened(core))} wait for"
    return replace(
        verdict,
        remainder=left,
        core=core,
        behind=tuple(party for party in left if party not in direct),
        witness=Witness(kind="orphan", parties=core, text=text),
        explanation=tuple(
            sentence(wait, snapshot.ref.ended) for wait in map(snapshot.waits.wait, direct.values()) if wait.waiter in core
        ),
    )


def _waiting_for(waits: WaitColumns, holders: frozenset[PartyName]) -> dict[PartyName, int]:
    """The parties that wait for one of these holders, each with one such wait (its position)."""
    positions = {waits.names.index(holder) for holder in holders}
    sizes = np.diff(waits.indptr)
    owners = np.repeat(np.arange(len(sizes)), sizes)
    found = owners[np.isin(waits.targets, sorted(positions))]
    return {waits.names[waits.waiter[wait]]: int(wait) for wait in found if waits.names[waits.waiter[wait]] not in holders}
