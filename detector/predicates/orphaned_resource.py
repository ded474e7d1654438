"""orphaned-resource: some parties wait for a resource whose holder has ended without releasing it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from detector.core.snapshot import Snapshot
from detector.graph.columns import Bools, WaitColumns
from detector.graph.reduction import Reduction
from detector.graph.reduction_bounds import ReductionBounds, bounds
from detector.predicates.deadlock import ended_holders, stuck_bounds
from detector.predicates.evidence.blocked_verdict import as_of, blocked_verdict, certain_graph
from detector.predicates.evidence.explanation import listed, sentence
from stilltrue.model import Holds, PartyName, Verdict, Witness, has_ended


class OrphanedResource:
    """Holds when some parties wait without a deadline for a resource whose holder has ended without releasing it.

    Or for the reply to a call whose handler has ended without a status.

    An ended holder is a party that waits for itself and whose name, after that of its process, begins with ``ended:``. Only its
    own process reports it, on positive evidence. It may also wait for a party that could still answer in its place.
    Deadlocked parties and those behind them count as free, since ``deadlock`` reports them, unless they also wait for ended
    holders alone.
    """

    name = "orphaned-resource"
    treats_missing = True
    treats_forgotten = True
    reads_activity = False

    def evaluate(self, snapshot: Snapshot) -> Verdict:
        """TRUE with the parties that wait for an ended holder (the core), and those behind them."""
        found = orphaned_bounds(snapshot)
        verdict = blocked_verdict(self.name, snapshot, found, certain_graph(snapshot, found))
        if verdict.holds is Holds.TRUE:
            return _about_waiters(verdict, snapshot)
        if verdict.holds is Holds.FALSE:  # the default text could say that a deadlocked party can move
            text = f"no party was stuck behind a holder that has ended {as_of(snapshot.ref)}"
            return replace(verdict, witness=replace(verdict.witness, text=text))
        return verdict


def orphaned_bounds(snapshot: Snapshot) -> ReductionBounds:
    """The reductions that decide it: as for ``deadlock``, but ended holders never move, and deadlocked parties are left out."""
    waits, missing = snapshot.waits, snapshot.of_missing()
    found = bounds(waits, ended=waits.passing(missing), missing=missing, vouched=~waits.uncoloured)
    forever = stuck_bounds(snapshot)
    surely, perhaps = ~forever.certain.free & ~missing, ~forever.pessimistic.free & ~missing
    holders = np.zeros(len(waits.names), np.bool_)
    holders[waits.waiter[ended_holders(waits)]] = True
    for_ended = _only_for(waits, holders)
    surely[waits.waiter[for_ended]] = False
    perhaps[waits.waiter[for_ended & ~waits.uncoloured]] = False

    def without(reduction: Reduction, deadlocked: Bools) -> Reduction:
        """Leave out the deadlocked parties, and the holders if no party waits for them."""
        left = reduction.further(released=deadlocked)
        return left if (~left.free & ~holders & ~missing).any() else left.further(released=holders)

    return replace(
        found,
        pessimistic=without(found.pessimistic, surely),
        doubtful=without(found.doubtful, surely),
        certain=without(found.certain, perhaps),
    )


def _only_for(waits: WaitColumns, parties: Bools) -> Bools:
    """(W,) mask of the waits without a deadline all of whose targets are among ``parties``, (P,)."""
    sizes = np.diff(waits.indptr)
    owners = np.repeat(np.arange(len(sizes)), sizes)
    others = np.bincount(owners, weights=~parties[waits.targets], minlength=len(sizes))
    only: Bools = (others == 0) & (sizes > 0) & np.isnan(waits.deadline)
    return only


def _about_waiters(verdict: Verdict, snapshot: Snapshot) -> Verdict:
    """Restate the verdict in terms of the waiting parties; its text names the ended holders."""
    left = tuple(party for party in verdict.remainder if not has_ended(party))
    direct = _waiting_for(snapshot.waits, frozenset(party for party in verdict.remainder if has_ended(party)))
    core = tuple(party for party in left if party in direct)
    awaited = (party for wait in map(snapshot.waits.wait, direct.values()) for party in wait.among if wait.waiter in core)
    holders = tuple(sorted({party for party in awaited if has_ended(party)}))
    text = f"{listed(holders)} can never give {listed(core)} what they wait for"
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
    """The parties that wait for one of ``holders``, each with the index of one such wait."""
    positions = {waits.names.index(holder) for holder in holders}
    sizes = np.diff(waits.indptr)
    owners = np.repeat(np.arange(len(sizes)), sizes)
    found = owners[np.isin(waits.targets, sorted(positions))]
    return {waits.names[waits.waiter[wait]]: int(wait) for wait in found if waits.names[waits.waiter[wait]] not in holders}
