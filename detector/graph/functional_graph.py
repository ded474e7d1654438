"""Resolves functional graphs, in which every party waits for one other: finds which parties lead to an end, which to a cycle.

Following a single path, each step waits for memory; following a thousand paths side by side hides the latency. So a random one
in ``WALKER_SHARE`` of the parties, the walkers, each walk to the next walker, to an end, or to a party that another walker has
passed. The parties met on the way share the walker's fate. What remains is the same problem on the walkers alone (list ranking
by splitters).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from detector.graph.columns import Ints

Steps = NDArray[np.intp]
Fates = NDArray[np.int8]

UNKNOWN, STUCK, FREE = -1, 0, 1
WALKER_SHARE = 8
DOUBLING_PARTIES_MAX = 1 << 14
"""Up to this many parties, pointer doubling (two steps ahead, four, eight, ...) is faster."""
LOOKAHEAD_STEPS_MAX = 8
"""Steps for parties that no walker met, before the rest becomes a problem of its own."""


def follow(after: Steps, fates: Fates, salt: int = 1) -> None:
    """Resolve unknown ``fates`` in place: a party shares its successor's fate, and is stuck if it leads to a cycle.

    Parameters
    ----------
    after : (N,) the successor of each party; not read where the fate is known.
    fates : (N,) FREE, STUCK or UNKNOWN; afterwards none is UNKNOWN.
    salt : seed for choosing walkers; it does not affect the result.

    Notes
    -----
    Linear work in expectation, in few passes over memory.

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
    if count <= DOUBLING_PARTIES_MAX:
        _resolve_by_doubling(after, fates, count)
        return
    unknown = np.flatnonzero(fates == UNKNOWN)
    walkers = unknown[_sample(unknown, salt)]
    del unknown  # eight bytes per party
    position = _positions(walkers, len(after))
    met, goals = _walk(after, fates, walkers, position)
    to, known = position[goals], fates[goals]
    del position
    onward = np.where(to >= 0, to, 0).astype(np.intp)
    own = np.where(goals == walkers, STUCK, np.where(to >= 0, UNKNOWN, known)).astype(np.int8)
    follow(onward, own, salt + 1)
    fates[walkers] = own
    others = np.flatnonzero(met >= 0)
    fates[others] = own[met[others]]
    del met, others
    _resolve_unmet(after, fates, np.flatnonzero(fates == UNKNOWN), salt)


def _positions(parties: Steps, size: int) -> Ints:
    """(size,) the index of each party in ``parties``; -1 for the others."""
    position: Ints = np.full(size, -1, np.int32 if size < 2**31 else np.int64)
    position[parties] = np.arange(len(parties))
    return position


def _sample(parties: Steps, salt: int) -> NDArray[np.bool_]:
    """Mask of one in ``WALKER_SHARE`` of ``parties``, chosen by a hash so that patterns in the graph do not matter."""
    mixed = parties.astype(np.uint64)
    mixed += np.uint64(salt)
    mixed *= np.uint64(0x9E3779B97F4A7C15)
    mixed >>= np.uint64(40)
    mixed %= np.uint64(WALKER_SHARE)
    chosen: NDArray[np.bool_] = mixed == 0
    return chosen


def _walk(after: Steps, fates: Fates, walkers: Steps, position: Ints) -> tuple[Ints, Steps]:
    """The walker that met each party (-1 if none), and where each walker ended: at itself if it is on a cycle."""
    met: Ints = np.full_like(position, -1)
    halt = (fates != UNKNOWN) | (position >= 0)
    goals = after[walkers]
    alive = np.flatnonzero(~halt[goals])
    while len(alive):  # the number of steps is the longest stretch: about a hundred for a million parties
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


def _resolve_unmet(after: Steps, fates: Fates, left: Steps, salt: int) -> None:
    """Resolve the parties that no walker met: take a few steps from each, then treat the rest as a smaller problem."""
    here = after[left]
    for _ in range(LOOKAHEAD_STEPS_MAX):
        if not len(left):
            return
        known = fates[here]
        there = known != UNKNOWN
        fates[left[there]] = known[there]
        left, here = left[~there], after[here[~there]]
    left = np.flatnonzero(fates == UNKNOWN)
    onward, own = _subproblem(after, fates, left)
    follow(onward, own, salt + 7)
    fates[left] = own[: len(left)]


def _resolve_by_doubling(after: Steps, fates: Fates, count: int) -> None:
    """Resolve ``count`` unknown fates by pointer doubling; parties that reach no end lead to a cycle."""
    if 2 * count + 4 < len(after):  # only few are unknown: renumber them
        left = np.flatnonzero(fates == UNKNOWN)
        onward, own = _subproblem(after, fates, left)
        _resolve_by_doubling(onward, own, count)
        fates[left] = own[:count]
        return
    known = np.flatnonzero(fates != UNKNOWN)
    onward = after.copy()
    onward[known] = known
    for _ in range(count.bit_length()):
        onward = onward[onward]
    fates[:] = fates[onward]
    fates[fates == UNKNOWN] = STUCK


def _subproblem(after: Steps, fates: Fates, left: Steps) -> tuple[Steps, Fates]:
    """The problem on ``left`` alone, renumbered; two extra nodes represent the known fates."""
    count = len(left)
    onward: Steps = np.empty(count + 2, np.intp)
    step = onward[:count]
    np.take(after, left, out=step, mode="clip")  # other modes write to a copy first
    known = fates[step] == FREE
    step[:] = _positions(left, len(after))[step]
    ended = step < 0
    step[ended] = count + known[ended]
    onward[count:] = count, count + 1
    own = np.full(count + 2, UNKNOWN, np.int8)
    own[count:] = STUCK, FREE
    return onward, own
