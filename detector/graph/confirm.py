"""Which uncoloured waits the previous snapshot confirms (DESIGN.md section 3)."""

from __future__ import annotations

import numpy as np

from detector.graph.columns import NO_NUMBER, Bools, WaitColumns
from detector.graph.reduction import reduce


def confirmed(waits: WaitColumns, previous: WaitColumns | None, ended: Bools) -> Bools:
    """(W,) the waits that a verdict may lean on: the coloured ones, and the uncoloured ones that are confirmed.

    Parameters
    ----------
    waits : the waits of this snapshot.
    previous : those of the previous complete snapshot, which ended before this one began; None when there is none.
    ended : (W,) waits that end by themselves.

    Notes
    -----
    A wait that both snapshots show under the same number lasted from the one to the other. If a set of parties is stuck by
    such waits alone, all of them were blocked at one instant between the two, whatever was in their channels. So an
    uncoloured wait counts when its waiter is in the remainder of the lasting waits; without a number it never does, for it
    may have ended and begun again.
    """
    if not waits.uncoloured.any():
        return np.ones(len(waits), np.bool_)
    if previous is None:
        return ~waits.uncoloured
    lasting = _lasting(waits, previous)
    stuck = ~reduce(waits, ended=ended | ~lasting).free
    return ~waits.uncoloured | (lasting & stuck[waits.waiter])


def _lasting(waits: WaitColumns, previous: WaitColumns) -> Bools:
    """(W,) the waits that ``previous`` shows as well: same waiter, number, needs and targets."""
    before = {_identity(previous, at) for at in np.flatnonzero(previous.number != NO_NUMBER).tolist()}
    lasting = np.zeros(len(waits), np.bool_)
    for at in np.flatnonzero(waits.number != NO_NUMBER).tolist():
        lasting[at] = _identity(waits, at) in before
    return lasting


def _identity(waits: WaitColumns, at: int) -> tuple[str, int, int, tuple[str, ...]]:
    return waits.names[waits.waiter[at]], int(waits.number[at]), int(waits.needs[at]), waits.named(waits.targets_of(at))
