"""Where ways lead on which everybody waits for one: found by walking many pieces of them at once, not step after step.

Along one way each step must wait for memory to answer the step before; a thousand ways walked side by side do not. So some
parties, one in ``APART`` and scattered, each walk to the next one of them, to an end, or to where another has walked already:
whoever was met on the way shares the walker's fate. What is left is the same question about the walkers alone.

The idea is that of list ranking by splitters: M. Reid-Miller, List ranking and list scan on the Cray C-90, SPAA (1994).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

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
    open_ones = np.flatnonzero(fates == UNKNOWN)
    if len(open_ones) <= FEW:
        _doubled(after, fates, open_ones)
        return
    walkers = open_ones[_scattered(open_ones, salt)]
    place = np.full(len(after), -1, np.intp)
    place[walkers] = np.arange(len(walkers))
    met, goals = _walked(after, fates, walkers, place)
    to, known = place[goals], fates[goals]
    onward, own = np.where(to >= 0, to, 0), np.where(goals == walkers, STUCK, np.where(to >= 0, UNKNOWN, known)).astype(np.int8)
    follow(onward, own, salt + 1)
    fates[walkers] = own
    others = open_ones[met[open_ones] >= 0]
    fates[others] = own[met[others]]
    _looked_ahead(after, fates, np.flatnonzero(fates == UNKNOWN), salt)


def _scattered(parties: Steps, salt: int) -> NDArray[np.bool_]:
    """One in ``APART`` of ``parties``, whatever is regular about them."""
    mixed = (parties.astype(np.uint64) + np.uint64(salt)) * np.uint64(0x9E3779B97F4A7C15)
    chosen: NDArray[np.bool_] = (mixed >> np.uint64(40)) % np.uint64(APART) == 0
    return chosen


def _walked(after: Steps, fates: Fates, walkers: Steps, place: Steps) -> tuple[Steps, Steps]:
    """By which walker each party was met (-1: none); and where each walker came to: itself when it goes round for ever."""
    met = np.full(len(after), -1, np.intp)
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


def _doubled(after: Steps, fates: Fates, left: Steps) -> None:
    """The same by looking one step ahead, then two, four, ...: whose way has not ended by then goes round."""
    onward, own = _alone(after, fates, left)
    for _ in range(len(left).bit_length()):
        onward = onward[onward]
    found = own[onward[: len(left)]]
    fates[left] = np.where(found == UNKNOWN, STUCK, found)


def _alone(after: Steps, fates: Fates, left: Steps) -> tuple[Steps, Fates]:
    """The question about ``left`` alone, numbered anew: two more stand for all whose fate is known."""
    count = len(left)
    place = np.full(len(after), -1, np.intp)
    place[left] = np.arange(count)
    to = place[after[left]]
    stuck, free = count, count + 1
    ends = np.where(fates[after[left]] == FREE, free, stuck)
    onward = np.concatenate((np.where(to >= 0, to, ends), (stuck, free)))
    return onward, np.concatenate((np.full(count, UNKNOWN, np.int8), np.array([STUCK, FREE], np.int8)))
