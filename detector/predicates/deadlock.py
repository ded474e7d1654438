"""deadlock: parties that no sequence of grants can ever free."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from detector.core.snapshot import Snapshot
from detector.graph.columns import Bools, Ints, WaitColumns
from detector.graph.reduction_bounds import ReductionBounds, bounds
from detector.predicates.evidence.blocked_verdict import as_of, blocked_verdict, certain_graph
from detector.predicates.evidence.preference import find_preference
from detector.predicates.evidence.suggestion import with_suggestion
from stilltrue.model import Holds, Verdict, has_ended


class Deadlock:
    """Holds when some parties can never proceed, whatever the others do.

    Waits with a deadline are left out, since they end by themselves (see ``gridlock``). So are holders that have ended and the
    parties that wait for them (see ``orphaned-resource``). Missing members are considered twice, as free and as never moving
    (docs/design.md section 6). A wait in doubt supports neither TRUE nor FALSE.

    Parameters
    ----------
    victims : how victims are chosen: ``youngest``, ``least-work``, ``lowest-priority``, or your own preference.
    never : parties or processes that must not be chosen as victims; ``*`` matches anything.
    """

    name = "deadlock"
    treats_missing = True
    treats_forgotten = True
    reads_activity = False

    def __init__(self, *, victims: str = "youngest", never: Sequence[str] = ()) -> None:
        self._preference = find_preference(victims)
        self._never = (never,) if isinstance(never, str) else tuple(never)

    def evaluate(self, snapshot: Snapshot) -> Verdict:
        """TRUE with remainder, core, witness and victims; FALSE with the first movers; UNDETERMINED with its reason."""
        found = stuck_bounds(snapshot)
        graph = certain_graph(snapshot, found)
        verdict = blocked_verdict(self.name, snapshot, found, graph)
        if verdict.holds is Holds.FALSE and (elsewhere := see_orphaned_resource(snapshot)):
            text = f"no party was deadlocked {as_of(snapshot.ref)}; {elsewhere}"
            return replace(verdict, witness=replace(verdict.witness, text=text))
        return with_suggestion(verdict, snapshot, found.certain, graph, self._preference, self._never)


def stuck_bounds(snapshot: Snapshot) -> ReductionBounds:
    """The reductions that decide deadlock, from the most pessimistic to the certain one."""
    waits, missing = snapshot.waits, snapshot.of_missing()
    passing, holders, vouched = waits.passing(missing), ended_holders(waits), ~waits.uncoloured
    found = bounds(waits, ended=passing | holders, missing=missing, vouched=vouched)
    behind = holders & _behind(waits, ~found.certain.free)
    return bounds(waits, ended=passing | holders & ~behind, missing=missing, vouched=vouched) if behind.any() else found


def see_orphaned_resource(snapshot: Snapshot) -> str:
    """Refers to ``orphaned-resource`` if parties wait for ended holders for certain, and no party is deadlocked; else empty."""
    waits, missing = snapshot.waits, snapshot.of_missing()
    holders = ended_holders(waits)
    if not holders.any():
        return ""
    stuck = ~bounds(waits, ended=waits.passing(missing), missing=missing, vouched=~waits.uncoloured).certain.free & ~missing
    stuck[waits.waiter[holders]] = False
    waiting = int(np.count_nonzero(stuck))
    parties = "1 party is" if waiting == 1 else f"{waiting} parties are"
    return f"{parties} stuck behind a holder that has ended: see orphaned-resource" if waiting else ""


def ended_holders(waits: WaitColumns) -> Bools:
    """(W,) mask of the waits of ended holders (see ``orphaned-resource``).

    Each waits for itself, or for a party that could still answer in its place: one that may stop the server, for example.
    """
    found = np.zeros(len(waits.waiter), np.bool_)
    own = waits.waiter[_owners(waits)] == waits.targets
    candidates = np.unique(_owners(waits)[own])
    found[[wait for wait in candidates.tolist() if has_ended(waits.names[waits.waiter[wait]])]] = True
    return found


def _behind(waits: WaitColumns, stuck: Bools) -> Bools:
    """(W,) mask of the waits with targets besides their own waiter, all of them ``stuck``, (P,)."""
    owners = _owners(waits)
    others = waits.targets != waits.waiter[owners]
    count = np.bincount(owners[others], minlength=len(waits.waiter))
    free = np.bincount(owners[others], weights=~stuck[waits.targets[others]], minlength=len(waits.waiter))
    behind: Bools = (count > 0) & (free == 0)
    return behind


def _owners(waits: WaitColumns) -> Ints:
    """(T,) the wait that each target belongs to."""
    sizes = np.diff(waits.indptr)
    return np.repeat(np.arange(len(sizes)), sizes)
