"""Which uncoloured waits the previous snapshot confirms (docs/design.md section 3)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from detector.graph.columns import NO_NUMBER, Bools, Ints, WaitColumns
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
    at = {name: index for index, name in enumerate(waits.names)}
    place = np.fromiter((at.get(name, -1) for name in previous.names), np.int64, len(previous.names))
    before = {wait for wait in _identities(previous, place) if wait[1] != NO_NUMBER}
    own = _identities(waits, np.arange(len(waits.names), dtype=np.int64))
    return np.fromiter((wait in before for wait in own), np.bool_, len(waits))


def _identities(waits: WaitColumns, place: Ints) -> Iterator[tuple[int, int, int, bytes]]:
    """Each wait as waiter, number, needs and targets, in numbers that two snapshots share: ``place`` (P,), -1 for strangers.

    Names are sorted in both, so targets that are the same come in the same order.
    """
    targets = place[waits.targets].tobytes()
    ends = (waits.indptr.astype(np.int64) * place.itemsize).tolist()
    each = map(targets.__getitem__, map(slice, ends, ends[1:]))
    return zip(place[waits.waiter].tolist(), waits.number.tolist(), waits.needs.tolist(), each, strict=False)
