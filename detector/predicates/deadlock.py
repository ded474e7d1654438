"""deadlock: parties that no sequence of grants can ever free."""

from __future__ import annotations

import numpy as np

from detector.core.snapshot import Snapshot
from detector.graph.confirm import confirmed
from detector.graph.partial import Bounds, bounds
from detector.predicates.blocked import blocked_verdict
from stilltrue.model import Verdict


class Deadlock:
    """Holds when some parties can never go on, whatever anybody does.

    A wait with a deadline ends by itself, so it is left out: see ``gridlock``. Missing members are treated twice, as free
    and as never moving (DESIGN.md section 6). Waits that no stamp vouches for need the previous snapshot's word (section 3).
    """

    name = "deadlock"
    treats_missing = True

    def evaluate(self, snapshot: Snapshot) -> Verdict:
        """TRUE with remainder, core and witness; FALSE with who could still move; UNDETERMINED with what it hangs on."""
        return blocked_verdict(self.name, snapshot, stuck_bounds(snapshot))


def stuck_bounds(snapshot: Snapshot) -> Bounds:
    """The reductions that decide about deadlock, from the most pessimistic to the one that is certain."""
    waits = snapshot.waits
    missing = snapshot.of_missing()
    ended = ~np.isnan(waits.deadline) | missing[waits.waiter]
    return bounds(waits, ended=ended, missing=missing, vouched=confirmed(waits, snapshot.previous, ended))
