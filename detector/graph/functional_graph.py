"""Resolves functional graphs, in which every party waits for one other: which parties lead to an end, and which to a cycle.

Following a single path, each step waits for memory; a thousand paths followed side by side do not. So some parties (walkers,
one in ``APART``, scattered) each walk to the next walker, to an end, or to where another has already walked; the parties met
on the way share the walker's fate. What remains is the same problem on the walkers alone: list ranking by splitters.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from detector.graph.columns import Ints

Steps = NDArray[np.intp]
Fates = NDArray[np.int8]

UNKNOWN, STUCK, FREE = -1, 0, 1
APART = 8
FEW = 1 << 14
"""Up to this many parties, pointer doubling is faster: the party two steps on, four, eight, ..."""
LOOKED_AHEAD_MAX = 8
"""Steps for parties that no walker met, before they become a problem of their own."""


def follow(after: Steps, fates: Fates, salt: int = 1) -> None:
    """Resolve unknown ``fates`` in place: a party shares the fate of its successor, and one that leads to a cycle is stuck.

    Parameters
    ----------
    after : (N,) the successor of each party; not read where the fate is known.
    fates : (N,) FREE, STUCK or UNKNOWN; no UNKNOWN is left.
    salt : seed for choosing walkers.

    Notes
    -----
    Linear work in expectation, in few passes over memory. The result does not depend on ``salt``.

    References
    ----------
    M. Reid-Miller, List ranking and list scan on the Cray C-90, SPAA (1994).

    Examples
    --------
    >>> fates = np.array([UNKNOWN, UNKNOWN, FREE, UNKNOWN, UNKNOWN], np.int8)
    >>> follow(np.array([1, 2, 2, 4, 3]), fates)  # 0 -> 1 -> 2, which is free; 3 <-> 4
    >>> (fates == FREE).tolist()
    [True, True, True, False, False]
    """
    count = int(np.count_nonzero(fates == UNKNOWN))
    if count <= FEW:
        _doubled(after, fates, count)
        return
    open_ones = np.flatnonzero(fates == UNKNOWN)
    walkers = open_ones[_scattered(open_ones, salt)]
    del open_ones  # eight bytes a party
    place = _places(walkers, len(after))
    met, goals = _walked(after, fates, walkers, place)
    to, known = place[goals], fates[goals]
    del place
    onward = np.where(to >= 0, to, 0).astype(np.intp)
    own = np.where(goals == walkers, STUCK, np.where(to >= 0, UNKNOWN, known)).astype(np.int8)
    follow(onward, own, salt + 1)
    fates[walkers] = own
    others = np.flatnonzero(met >= 0)
    fates[others] = own[met[others]]
    del met, others
    _looked_ahead(after, fates, np.flatnonzero(fates == UNKNOWN), salt)


def _places(parties: Steps, size: int) -> Ints:
    """(size,) the position of each party in ``parties``; -1 for the others."""
    place: Ints = np.full(size, -1, np.int32 if size < 2**31 else np.int64)
    place[parties] = np.arange(len(parties))
    return place


def _scattered(parties: Steps, salt: int) -> NDArray[np.bool_]:
    """One in ``APART`` of ``parties``, chosen by a hash so that no pattern matters."""
    mixed = parties.astype(np.uint64)
    mixed += np.uint64(salt)
    mixed *= np.uint64(0x9E3779B97F4A7C15)
    mixed >>= np.uint64(40)
    mixed %= np.uint64(APART)
    chosen: NDArray[np.bool_] = mixed == 0
    return chosen


def _walked(after: Steps, fates: Fates, walkers: Steps, place: Ints) -> tuple[Ints, Steps]:
    """The walker that met each party (-1: none), and where each walker ended: at itself when it is on a cycle."""
    met: Ints = np.full_like(place, -1)
    halt = (fates != UNKNOWN) | (place >= 0)
    goals = after[walkers]
    alive = np.flatnonzero(~halt[goals])
    while len(alive):  # as many steps as the longest piece: about a hundred for a million parties
        here = goals[alive]
        met_by = met[here]
        fresh = met_by < 0
        met[here[fresh]] = alive[fresh]
        winner = met[here] == alive
        winner &= fresh
        losers = alive[~winner]
        goals[losers] = walkers[met[here[~winner]]]
        alive, here = alive[winner], after[here[winner]]
        goals[alive] = here
        alive = alive[~halt[here]]
    return met, goals


def _looked_ahead(after: Steps, fates: Fates, left: Steps, salt: int) -> None:
    """Resolve the parties that no walker met: a few steps each, and the rest as a smaller problem."""
    here = after[left]
    for _ in range(LOOKED_AHEAD_MAX):
        if not len(left):
            return
        known = fates[here]
        there = known != UNKNOWN
        fates[left[there]] = known[there]
        left, here = left[~there], after[here[~there]]
    left = np.flatnonzero(fates == UNKNOWN)
    onward, own = _alone(after, fates, left)
    follow(onward, own, salt + 7)
    fates[left] = own[: len(left)]


def _doubled(after: Steps, fates: Fates, count: int) -> None:
    """Resolve ``count`` unknown fates by pointer doubling; those that reach no end are on a cycle."""
    if 2 * count + 4 < len(after):  # few of many: renumber
        left = np.flatnonzero(fates == UNKNOWN)
        onward, own = _alone(after, fates, left)
        _doubled(onward, own, count)
        fates[left] = own[:count]
        return
    known = np.flatnonzero(fates != UNKNOWN)
    onward = after.copy()
    onward[known] = known
    for _ in range(count.bit_length()):
        onward = onward[onward]
    fates[:] = fates[onward]
    fates[fates == UNKNOWN] = STUCK


def _alone(after: Steps, fates: Fates, left: Steps) -> tuple[Steps, Fates]:
    """The problem on ``left`` alone, renumbered; two more nodes stand for all known fates."""
    count = len(left)
    onward: Steps = np.empty(count + 2, np.intp)
    step = onward[:count]
    np.take(after, left, out=step, mode="clip")  # the other modes write to a copy first
    known = fates[step] == FREE
    step[:] = _places(left, len(after))[step]
    ended = step < 0
    step[ended] = count + known[ended]
    onward[count:] = count, count + 1
    own = np.full(count + 2, UNKNOWN, np.int8)
    own[count:] = STUCK, FREE
    return onward, own
