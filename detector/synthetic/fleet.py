"""A synthetic fleet: snapshots of many processes, generated as columns, for archives of any size with known truth.

Each process has a bounded pool and serves calls from outside and along a call graph. In a planted *ring* every worker of each
process waits for a call that is queued behind the next process's workers: a deadlock. In a near miss, one of these workers
waits for nothing.

Rings have small pools, so calls along the graph could form deadlocks that were not planted. To keep the truth known, members of
rings call each other only within their ring, and others call them only from processes that are never called. So a ring never
waits for a party that is queued behind its own pools.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from detector.synthetic.fleet_model import Calls, Fleet, Int64s, Ring, Served, Times, rank_in
from detector.synthetic.fleet_rows import FleetRows

RING_NUMBER = 10**11
"""Above all other numbers. Calls have odd numbers; parties called from outside have even ones."""
REPLY_SHARE, REQUEST_SHARE, DEADLINE_SHARE = 0.04, 0.02, 0.2


class FleetColumns:
    """Generates the rows of ``reports`` of one fleet. Deterministic in its arguments."""

    def __init__(self, fleet: Fleet, rings: Sequence[Ring], *, seed: int, period_seconds: float, begun: float) -> None:
        """``begun``: start time of snapshot 1, seconds since the epoch."""
        self._fleet = fleet
        self._rings = rings
        self._seed = seed
        self._period = period_seconds
        self._begun = begun
        order = np.argsort(fleet.callers, kind="stable")
        self._callees = fleet.callees[order]
        self._edge_begins = np.searchsorted(fleet.callers[order], np.arange(len(fleet.names) + 1))
        totals = np.bincount(fleet.callers, weights=fleet.weights, minlength=len(fleet.names))
        share = fleet.weights[order] / np.maximum(totals[fleet.callers[order]], 1e-300)
        self._edge_sums = np.concatenate(([0.0], np.cumsum(share)))
        self._ringed = np.zeros(len(fleet.names), np.bool_)
        self._ringed[[member for ring in rings for member in ring.members]] = True

    def reports(self, first: int, count: int, *, load: float, missing_share: float) -> pa.Table:
        """Return the reports of ``count`` snapshots from ``first``; ``load``: mean number of calls from outside per process."""
        random = np.random.default_rng((self._seed, first))
        begun = self._begun + self._period * (np.arange(first, first + count) - 1)
        served, calls = self._calls(random, first, begun, load)
        missing = np.zeros((count, len(self._fleet.names)), np.bool_)
        for at in np.flatnonzero(random.random(count) < missing_share).tolist():
            missing[at, random.integers(0, len(self._fleet.names), random.integers(1, 4))] = True
        missing[:, self._ringed] = False
        return FleetRows(self._fleet, first, begun, served, calls, missing).table()

    def _calls(self, random: np.random.Generator, first: int, begun: Times, load: float) -> tuple[Served, Calls]:
        rings = self._ring_parties(first, len(begun))
        busy = random.poisson(load, (len(begun), len(self._fleet.names)))
        at, process = (np.repeat(values, busy.ravel()) for values in np.divmod(np.arange(busy.size), busy.shape[1]))
        roots = Served(at=at, process=process, tag=2 * (np.arange(len(at)) + 1000 * (first + at)), call=np.full(len(at), -1))
        served = _joined_served(rings.served, roots)
        calls = rings.calls
        layer = np.arange(len(rings.served.at), len(served.at))
        for share in (0.7, 0.3):
            layer = layer[~self._queued(served)[layer]]
            made = self._calls_of(random, served, layer[random.random(len(layer)) < share], begun, len(calls.at), first)
            calls = _joined_calls(calls, made)
            at_server = np.flatnonzero(made.where == 0)
            rows = at_server + len(calls.at) - len(made.at)
            arrived = Served(at=made.at[at_server], process=made.callee[at_server], tag=made.number[at_server], call=rows)
            layer = np.arange(len(served.at), len(served.at) + len(at_server))
            served = _joined_served(served, arrived)
        return served, calls

    def _queued(self, served: Served) -> NDArray[np.bool_]:
        """Return the queued calls: all but the first ones at each process, as many as its pool has workers."""
        return rank_in(served.at * len(self._fleet.names) + served.process) >= self._fleet.pools[served.process]

    def _calls_of(self, random: np.random.Generator, served: Served, by: Int64s, begun: Times, made: int, first: int) -> Calls:
        """Return a call along a random edge of each party's process, if it has any edges."""
        process = served.process[by]
        low, high = self._edge_begins[process], self._edge_begins[process + 1]
        by, process, low, high = (values[high > low] for values in (by, process, low, high))
        drawn = self._edge_sums[low] + random.random(len(by)) * (self._edge_sums[high] - self._edge_sums[low])
        edge = np.clip(np.searchsorted(self._edge_sums, drawn, side="right") - 1, low, high - 1)
        forbidden = self._ringed[self._callees[edge]] & (self._ringed[process] | (served.call[by] >= 0))
        by, process, edge = (values[~forbidden] for values in (by, process, edge))
        at = served.at[by]
        where = random.choice(3, len(by), p=(1 - REPLY_SHARE - REQUEST_SHARE, REPLY_SHARE, REQUEST_SHARE))
        since = begun[at] - random.exponential(0.2, len(by))
        return Calls(
            at=at,
            caller=process,
            callee=self._callees[edge],
            number=2 * (made + np.arange(len(by)) + 1000 * (first + at)) + 1,
            by=by,
            since=since,
            deadline=np.where(random.random(len(by)) < DEADLINE_SHARE, since + 30.0, np.nan),
            where=np.where(self._fleet.pools[self._callees[edge]] > 0, where, 0),
        )

    def _ring_parties(self, first: int, count: int) -> _Ring:
        """Return the planted parties and their calls, in every snapshot that has them."""
        found = [
            (ring, number - first)
            for ring in self._rings
            for number in range(max(ring.first, first), min(ring.last, first + count - 1) + 1)
        ]
        workers = [
            (at, member, RING_NUMBER + 1000 * ring.number + 50 * place + worker, ring, place, worker)
            for ring, at in found
            for place, member in enumerate(ring.members)
            for worker in range(int(self._fleet.pools[member]))
        ]
        calling = [row for row, each in enumerate(workers) if not (each[3].near_miss and each[4] == each[5] == 0)]
        callee = [workers[row][3].members[(workers[row][4] + 1) % len(workers[row][3].members)] for row in calling]
        at, process, tag = (np.asarray([each[field] for each in workers], np.int64) for field in range(3))
        calls = Calls(
            at=at[calling],
            caller=process[calling],
            callee=np.asarray(callee, np.int64),
            number=tag[calling],
            by=np.asarray(calling, np.int64),
            since=np.asarray([workers[row][3].formed + 0.01 * workers[row][4] for row in calling], np.float64),
            deadline=np.full(len(calling), np.nan),
            where=np.zeros(len(calling), np.int64),
        )
        outside = Served(at=at, process=process, tag=tag, call=np.full(len(at), -1))
        queued = Served(at=calls.at, process=calls.callee, tag=calls.number + 500, call=np.arange(len(calling)))
        return _Ring(served=_joined_served(outside, queued), calls=calls)


@dataclass(frozen=True, slots=True, eq=False)
class _Ring:
    served: Served
    calls: Calls


def _joined_served(*parts: Served) -> Served:
    return Served(*(np.concatenate([getattr(part, name) for part in parts]) for name in ("at", "process", "tag", "call")))


def _joined_calls(one: Calls, other: Calls) -> Calls:
    names = ("at", "caller", "callee", "number", "by", "since", "deadline", "where")
    return Calls(*(np.concatenate((getattr(one, name), getattr(other, name))) for name in names))
