"""One pass over the columns for all that is in doubt: missing members, and waits that nothing vouches for.

Doubt only ever adds to the remainder: a reduction in which missing parties never move and doubtful waits are real frees
fewest; it then goes on as the doubts are lifted one after the other.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np

from detector.graph.columns import Bools, WaitColumns
from detector.graph.reduction import Reduction, reduce
from stilltrue.model import PartyName, WaitNumber, process_of


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ReductionBounds:
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


def bounds(waits: WaitColumns, *, ended: Bools, missing: Bools, vouched: Bools) -> ReductionBounds:
    """Reduce once, from the most pessimistic view to the certain one.

    Parameters
    ----------
    waits : the waits.
    ended : (W,) those that end by themselves, and those of missing members: what is said of them is stale.
    missing : (P,) the parties of missing members.
    vouched : (W,) those that are certain: a stamp vouches for them, or a second look.
    """
    pessimistic = reduce(waits, ended=ended, held=missing)
    doubtful = pessimistic.further(released=missing) if missing.any() else pessimistic
    certain = doubtful if vouched.all() else doubtful.further(ended=~vouched)
    return ReductionBounds(missing=missing, pessimistic=pessimistic, doubtful=doubtful, certain=certain)


def left_over(
    waits: WaitColumns, missing: Collection[str], *, certain: bool = False, among: Collection[PartyName] | None = None
) -> dict[PartyName, tuple[WaitNumber, ...]]:
    """The parties that seem stuck while no deadline has fired and missing members are free: the parties of a suspicion.

    Each comes with the numbers of the waits that keep it stuck. ``certain``: waits in doubt count as ended; without it they
    count as real. ``among``: those of these parties that stand by themselves; all others are free.
    """
    if among is not None:
        return _left_over(waits, missing, certain=certain, among=among)
    known = _KNOWN.setdefault(waits, {})
    at = frozenset(missing), certain
    if at not in known:
        known[at] = _left_over(waits, missing, certain=certain, among=None)
    return known[at].copy()


_KNOWN: WeakKeyDictionary[WaitColumns, dict[tuple[frozenset[str], bool], dict[PartyName, tuple[WaitNumber, ...]]]]
_KNOWN = WeakKeyDictionary()
"""What was found of columns that are still in use: snapshots share theirs for as long as nothing changes."""


def _left_over(
    waits: WaitColumns, missing: Collection[str], *, certain: bool, among: Collection[PartyName] | None
) -> dict[PartyName, tuple[WaitNumber, ...]]:
    if missing:
        absent = np.fromiter((process_of(name) in missing for name in waits.names), np.bool_, len(waits.names))
    else:
        absent = np.zeros(len(waits.names), np.bool_)
    if among is not None:
        absent |= np.fromiter((name not in among for name in waits.names), np.bool_, len(waits.names))
    ended = absent[waits.waiter] | waits.uncoloured if certain else absent[waits.waiter]
    found = reduce(waits, ended=ended)
    numbers: dict[PartyName, dict[WaitNumber, None]] = {}
    for wait, waiter in zip(found.open.tolist(), found.waiter.tolist(), strict=True):
        numbers.setdefault(waits.names[waiter], {})[WaitNumber(int(waits.number[wait]))] = None
    return {party: tuple(own) for party, own in numbers.items()}
