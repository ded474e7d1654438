"""Reduces with doubt, from missing members and from waits that nothing vouches for, in one pass over the columns.

Doubt only ever adds to the remainder. The reduction in which missing parties never move and doubtful waits are real frees the
fewest parties; it then continues as the doubts are lifted one by one.
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
    """Three stages of one reduction; the remainder of each contains the next one's.

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
        """Whether the remainder has a party of a member that reported."""
        return bool((~reduction.free & ~self.missing).any())


def bounds(waits: WaitColumns, *, ended: Bools, missing: Bools, vouched: Bools) -> ReductionBounds:
    """Reduce once, from the most pessimistic view to the certain one.

    Parameters
    ----------
    waits : the waits.
    ended : (W,) the waits that end by themselves, and those of missing members, which are stale.
    missing : (P,) the parties of missing members.
    vouched : (W,) the certain waits, for which a stamp or a second look vouches.
    """
    pessimistic = reduce(waits, ended=ended, held=missing)
    doubtful = pessimistic.further(released=missing) if missing.any() else pessimistic
    certain = doubtful if vouched.all() else doubtful.further(ended=~vouched)
    return ReductionBounds(missing=missing, pessimistic=pessimistic, doubtful=doubtful, certain=certain)


def left_over(
    waits: WaitColumns, missing: Collection[str], *, certain: bool = False, among: Collection[PartyName] | None = None
) -> dict[PartyName, tuple[WaitNumber, ...]]:
    """The parties of a suspicion: those that seem stuck if no deadline fires and missing members are free.

    Each is mapped to the numbers of the waits that keep it stuck. ``certain``: treat waits in doubt as ended, not as real.
    ``among``: treat all other parties as free.
    """
    if among is not None:
        return _left_over(waits, missing, certain=certain, among=among)
    cached = _CACHE.setdefault(waits, {})
    key = frozenset(missing), certain
    if key not in cached:
        cached[key] = _left_over(waits, missing, certain=certain, among=None)
    return cached[key].copy()


_CACHE: WeakKeyDictionary[WaitColumns, dict[tuple[frozenset[str], bool], dict[PartyName, tuple[WaitNumber, ...]]]]
_CACHE = WeakKeyDictionary()
"""Results for columns still in use: snapshots share their columns as long as nothing changes."""


def _left_over(
    waits: WaitColumns, missing: Collection[str], *, certain: bool, among: Collection[PartyName] | None
) -> dict[PartyName, tuple[WaitNumber, ...]]:
    if missing:
        processes = frozenset(missing)
        absent = np.fromiter((process_of(name) in processes for name in waits.names), np.bool_, len(waits.names))
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
