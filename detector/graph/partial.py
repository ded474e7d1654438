"""One pass over the columns for all that is in doubt: missing members, and waits that no stamp vouches for.

Doubt only ever adds to the remainder: a reduction in which missing parties never move and doubtful waits are real frees
fewest; it then goes on as the doubts are lifted one after the other.
"""

from __future__ import annotations

from dataclasses import dataclass

from detector.graph.columns import Bools, WaitColumns
from detector.graph.reduction import Reduction, reduce


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Bounds:
    """Three ends of one reduction, each with a remainder that contains the next one's.

    Attributes
    ----------
    missing : (P,) the parties of missing members; they are in no remainder.
    pessimistic : missing parties never move, and doubtful waits are real.
    doubtful : missing parties are free, and doubtful waits are real.
    certain : missing parties are free, and doubtful waits have ended.
    """

    missing: Bools
    pessimistic: Reduction
    doubtful: Reduction
    certain: Reduction

    def anything_stuck(self, reduction: Reduction) -> bool:
        """Whether a party of a member that reported is left over."""
        return bool((~reduction.free & ~self.missing).any())


def bounds(waits: WaitColumns, *, ended: Bools, missing: Bools, vouched: Bools) -> Bounds:
    """Reduce once, from the most pessimistic view to the certain one.

    Parameters
    ----------
    waits : the waits.
    ended : (W,) those that end by themselves, and those of missing members: what is said of them is stale.
    missing : (P,) the parties of missing members.
    vouched : (W,) those that are certain: coloured, or confirmed.
    """
    pessimistic = reduce(waits, ended=ended, held=missing)
    doubtful = pessimistic.further(released=missing) if missing.any() else pessimistic
    certain = doubtful if vouched.all() else doubtful.further(ended=~vouched)
    return Bounds(missing=missing, pessimistic=pessimistic, doubtful=doubtful, certain=certain)
