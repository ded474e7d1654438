"""deadlock: parties that no sequence of grants can ever free."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from detector.core.snapshot import Snapshot
from detector.graph.columns import Bools, WaitColumns
from detector.graph.reduction_bounds import ReductionBounds, bounds
from detector.predicates.evidence.blocked_verdict import blocked_verdict, certain_graph
from detector.predicates.evidence.preference import find_preference
from detector.predicates.evidence.suggestion import with_suggestion
from stilltrue.model import Verdict, has_ended


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
        return with_suggestion(verdict, snapshot, found.certain, graph, self._preference, self._never)


def stuck_bounds(snapshot: Snapshot) -> ReductionBounds:
    """The reductions that decide deadlock, from the most pessimistic to the certain one."""
    waits, missing = snapshot.waits, snapshot.of_missing()
    return bounds(waits, ended=waits.passing(missing) | ended_holders(waits), missing=missing, vouched=~waits.uncoloured)


def ended_holders(waits: WaitColumns) -> Bools:
    """(W,) mask of the waits of ended holders, each of which waits for itself (see ``orphaned-resource``)."""
    found = np.zeros(len(waits.waiter), np.bool_)
    single = np.flatnonzero(np.diff(waits.indptr) == 1)
    own = single[waits.targets[waits.indptr[single]] == waits.waiter[single]]
    found[[wait for wait in own.tolist() if has_ended(waits.names[waits.waiter[wait]])]] = True
    return found
