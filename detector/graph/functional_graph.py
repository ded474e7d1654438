"""Where ways lead on which everybody waits for one: found by walking many pieces of them at once, not step after step.

Along one way each step must wait for memory to answer the step before; a thousand ways walked side by side do not. So some
parties, one in ``APART`` and scattered, each walk to the next one of them, to an end, or to where another has walked already:
whoever was met on the way shares the walker's fate. What is left is the same question about the walkers alone.

The idea is that of list ranking by splitters: M. Reid-Miller, List ranking and list scan on the Cray C-90, SPAA (1994).
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
"""So few are doubled: who is two steps on, four, eight, ..."""
LOOKED_AHEAD_MAX = 8
"""Steps for those whom no walker met; then they are a question of their own."""


def follow(after: Steps, fates: Fates, salt: int = 1) -> None:
    """Complete ``fates`` (N,), in place: whoever's is unknown shares that of ``after`` (N,); who goes round for ever is stuck.

    Parameters
    ----------
    after : the next party on each one's way; not read where the fate is known.
    fates : FREE, STUCK or UNKNOWN.
    salt : scatters the walkers.
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
    """(size,) the position in ``parties`` of each of them; -1 of all others."""
    place: Ints = np.full(size, -1, np.int32 if size < 2**31 else np.int64)
    place[parties] = np.arange(len(parties))
    return place


def _scattered(parties: Steps, salt: int) -> NDArray[np.bool_]:
    """One in ``APART`` of ``parties``, whatever is regular about them."""
    mixed = parties.astype(np.uint64)
    mixed += np.uint64(salt)
    mixed *= np.uint64(0x9E3779B97F4A7C15)
    mixed >>= np.uint64(40)
    mixed %= np.uint64(APART)
    chosen: NDArray[np.bool_] = mixed == 0
    return chosen


def _walked(after: Steps, fates: Fates, walkers: Steps, place: Ints) -> tuple[Ints, Steps]:
    """By which walker each party was met (-1: none); and where each walker came to: itself when it goes round for ever."""
    met: Ints = np.full_like(place, -1)
    halt = (fates != UNKNOWN) | (place >= 0)
    goals = after[walkers]
    alive = np.flatnonzero(~halt[goals])
    while len(alive):  # as many steps as the longest piece has: of a million parties, a hundred or so
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
    """The same for those whom no walker met: some steps each; what is left is a question of its own."""
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
    """The same for the ``count`` unknown ones, by looking one step ahead, then two, four, ...: who has no end goes round."""
    if 2 * count + 4 < len(after):  # few of many: numbered anew
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
    """The question about ``left`` alone, numbered anew: two more stand for all whose fate is known."""
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
