"""What the members of a fleet report: real ``Report`` messages of a known size, whose parts agree with each other.

Members stand in chains: each serves the calls of the one before it and waits for those that it made to the one after it; the
last one's calls go outside, so nobody is stuck. With deadlocks, they stand in pairs whose parties wait for each other.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import lru_cache

from stilltrue.protocol.wire.difference import fields_of, pieces_of
from stilltrue.v1 import agent_pb2
from stilltrue.v1 import snapshot_pb2 as pb

CHAIN = 10
BEGUN = time.time()


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """``entries``: waits, calls made and calls served of each member. ``churn``: the share of chains that change each snapshot.

    ``deadlocks``: of two parties each, in all; 0: the fleet is well.
    """

    members: int
    entries: int = 20
    churn: float = 0.0
    deadlocks: int = 0

    def process(self, index: int) -> pb.ProcessId:
        """Which process the member of this index is."""
        return pb.ProcessId(service=f"shop-{index % CHAIN}", instance=_name(index), incarnation=1)

    def report(self, index: int, snapshot: int, after: int) -> bytes:
        """The member's report for a snapshot, as bytes."""
        header = pb.Report(process=self.process(index), snapshot=snapshot, after=after, cut_at=time.time())
        return header.SerializeToString() + self._body(index, self._generation(index, snapshot))

    def difference(self, index: int, snapshot: int, after: int, base: int) -> agent_pb2.Difference:
        """The same as agents tell it that have reported to ``base`` (0: not yet): by what has changed since."""
        told = agent_pb2.Difference(base=base, snapshot=snapshot, after=after, cut_at=time.time())
        body = self._body(index, self._generation(index, snapshot))
        before = self._body(index, self._generation(index, base)) if base else b""
        if not base:
            told.pieces.add(fields=body)
        elif body != before:
            told.pieces.extend(pieces_of(fields_of(before), fields_of(body)))
        return told

    def _generation(self, index: int, snapshot: int) -> int:
        """How often the calls of the member's chain have been replaced by then; the same for the whole chain."""
        return 1 if not self.churn else 1 + (snapshot + index // CHAIN) // max(1, round(1 / self.churn))

    def _body(self, index: int, generation: int) -> bytes:
        return (
            _paired(index, self.deadlocks * 2 // self.members) if self.deadlocks else _chained(index, generation, self.entries)
        )


def _name(index: int) -> str:
    return f"shop-{index:05d}"


@lru_cache(maxsize=20_000)
def _chained(index: int, generation: int, entries: int) -> bytes:
    last, first = index % CHAIN == CHAIN - 1, index % CHAIN == 0
    report = pb.Report(activity=pb.ACTIVITY_BLOCKED, next_number=generation * entries + 1)
    since = BEGUN + generation
    for at in range(entries):
        number = (generation - 1) * entries + at + 1
        party = f"{_name(index)}/Put#{number}"
        made = report.made.add(number=number, method="/Stock/Put", target="stock:443", party=party, since=since)
        if not last:
            made.servers[_name(index + 1)] = 1
        served = report.served.add(party=party, method="/Stock/Put", serving=True, pool="pool", since=since)
        if not first:
            served.caller.process, served.caller.incarnation, served.number = _name(index - 1), 1, number
        report.waits.add(waiter=party, number=number, among=[pb.Target(call=number)], needs=1, since=since)
    if not first:
        floor = (generation - 1) * entries + 1
        caller = pb.Caller(process=_name(index - 1), incarnation=1)
        report.seen.add(caller=caller, highest=generation * entries, floor=floor)
    report.pools.add(name="pool", size=2 * entries)
    report.happenings = 3 * generation * entries
    return report.SerializeToString()


@lru_cache(maxsize=20_000)
def _paired(index: int, entries: int) -> bytes:
    other = _name(index ^ 1)
    report = pb.Report(activity=pb.ACTIVITY_BLOCKED, next_number=entries + 1)
    for number in range(1, entries + 1):
        party = f"{_name(index)}/Lock#{number}"
        made = report.made.add(number=number, method="/Stock/Lock", target="stock:443", party=party, since=BEGUN)
        made.servers[other] = 1
        caller = pb.Caller(process=other, incarnation=1)
        report.served.add(
            party=party, method="/Stock/Lock", serving=True, pool="pool", since=BEGUN, caller=caller, number=number
        )
        report.waits.add(waiter=party, number=number, among=[pb.Target(call=number)], needs=1, since=BEGUN)
    report.seen.add(caller=pb.Caller(process=other, incarnation=1), highest=entries, floor=1)
    report.pools.add(name="pool", size=2 * entries)
    report.happenings = 3 * entries
    return report.SerializeToString()
