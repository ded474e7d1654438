"""Random snapshots from random local states, for tests and benchmarks: every kind of wait, call position and doubt.

The reports are made up; all that follows from them (where each call is, the waits, the messages) is found by the
detector's own assembler.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from random import Random

import pyarrow as pa

from detector.archive.rows.row_decoder import verdict_of
from detector.archive.rows.row_encoder import report_rows, snapshot_row, verdict_row
from detector.archive.rows.schema import VERDICTS
from detector.archive.writer import table_of
from detector.core.predicate import Predicate
from detector.core.protocol.assembler import Assembled, PendingSnapshot
from detector.core.registry import ask
from detector.core.undetermined import nobody_reported
from stilltrue.model import (
    Activity,
    CallNumber,
    Facts,
    PartyName,
    ProcessId,
    ProcessName,
    SnapshotId,
    Verdict,
    WaitNumber,
    party,
)
from stilltrue.protocol.report import (
    Answered,
    Caller,
    CallerTarget,
    CallTarget,
    Hold,
    LocalWait,
    OutstandingCall,
    PartyTarget,
    Pool,
    Report,
    ResourceTarget,
    Seen,
    ServedCall,
    Target,
)

EPOCH_SECONDS = 1_790_000_000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldShape:
    """What random snapshots are like; shares are between 0 and 1."""

    processes: int = 6
    calls: int = 8
    locks: int = 2
    deadline_share: float = 0.05
    uncoloured_share: float = 0.05
    missing_share: float = 0.05
    lasting_share: float = 0.3


@dataclass(slots=True)
class _Local:
    """One process's local state in the making."""

    id: ProcessId
    made: list[OutstandingCall] = field(default_factory=list)
    served: list[ServedCall] = field(default_factory=list)
    answered: dict[ProcessName, list[Answered]] = field(default_factory=dict)
    waits: list[LocalWait] = field(default_factory=list)
    holds: list[Hold] = field(default_factory=list)
    pools: list[Pool] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomSnapshot:
    """One finished random snapshot, and the members that it expected."""

    assembled: Assembled
    members: dict[ProcessName, ProcessId]


def random_snapshots(seed: int, count: int, shape: WorldShape | None = None) -> Iterator[RandomSnapshot]:
    """``count`` snapshots, ids from 1, a minute apart; some show the very state of the one before (confirmation)."""
    random = Random(seed)
    shape = shape or WorldShape()
    reports: list[Report] = []
    for number in range(1, count + 1):
        if not reports or random.random() >= shape.lasting_share:
            reports = _World(random, shape).reports()
        begun = EPOCH_SECONDS + 60.0 * number
        members = {report.process.instance: report.process for report in reports}
        pending = PendingSnapshot(snapshot=SnapshotId(number), members=members, begun=begun, begun_by="period")
        for report in reports:
            if random.random() >= shape.missing_share:
                pending.offer(report)
        assembled = pending.assembled(begun + 0.25)
        yield RandomSnapshot(assembled=assembled, members=members)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Judged:
    """Snapshots as nouns and as rows, and each predicate's verdict on each, asked one at a time: what parity is held to."""

    made: tuple[RandomSnapshot, ...]
    snapshots: pa.Table
    reports: pa.Table
    predicates: tuple[Predicate, ...]
    verdicts: tuple[Verdict, ...]


def judged(made: Iterable[RandomSnapshot], predicates: Sequence[Predicate]) -> Judged:
    """Number the snapshots anew from 1, and ask every predicate about every one."""
    numbered = tuple(_numbered(each, SnapshotId(number)) for number, each in enumerate(made, start=1))
    return Judged(
        made=numbered,
        snapshots=table_of("snapshots", [snapshot_row(each.assembled, each.members) for each in numbered]),
        reports=table_of("reports", [row for each in numbered for row in report_rows(each.assembled)]),
        predicates=tuple(predicates),
        verdicts=tuple(_as_archived(_told(predicate, each)) for each in numbered for predicate in predicates),
    )


def _told(predicate: Predicate, made: RandomSnapshot) -> Verdict:
    """The service's verdict."""
    snapshot = made.assembled.snapshot
    return ask(predicate, snapshot) if snapshot.processes else nobody_reported(predicate.name, snapshot)


def _as_archived(verdict: Verdict) -> Verdict:
    """A verdict as its row in the archive tells it: rows bear neither stacks nor assumptions."""
    return verdict_of(dict.fromkeys(VERDICTS.names) | verdict_row(verdict))


def _numbered(made: RandomSnapshot, number: SnapshotId) -> RandomSnapshot:
    snapshot = made.assembled.snapshot
    numbered = replace(snapshot, ref=replace(snapshot.ref, id=number))
    return replace(made, assembled=replace(made.assembled, snapshot=numbered))


class _World:
    """Makes the reports of one global state."""

    def __init__(self, random: Random, shape: WorldShape) -> None:
        self._random = random
        self._shape = shape
        self._locals = [
            _Local(id=ProcessId(service=f"service{at % 3}", instance=ProcessName(f"p{at:02d}"), incarnation=1 + at))
            for at in range(shape.processes)
        ]
        self._number = 0

    def reports(self) -> list[Report]:
        for local in self._locals:
            self._serve_from_outside(local)
        for _ in range(self._shape.calls):
            self._call()
        for at in range(self._shape.locks):
            self._lock(f"lock{at}")
        for local in self._locals:
            self._close_pools(local)
        return [self._report(local) for local in self._locals]

    def _next(self) -> int:
        self._number += 1
        return self._number

    def _serve_from_outside(self, local: _Local) -> None:
        for _ in range(self._random.randrange(3)):
            name = party(local.id.instance, f"Serve#{self._next()}")
            local.served.append(ServedCall(party=name, method="/Serve", serving=True, pool="main"))

    def _call(self) -> None:
        """One party calls one to three others and waits for some of them."""
        random = self._random
        caller = random.choice(self._locals)
        serving = [served.party for served in caller.served if served.serving]
        waiter = random.choice(serving) if serving else party(caller.id.instance, f"task#{self._next()}")
        among: list[Target] = []
        for _ in range(random.choice((1, 1, 1, 2, 3))):
            call = OutstandingCall(
                number=CallNumber(self._next()),
                method="/Do",
                party=waiter,
                sent=1,
                doubtful=random.random() < 0.03,
                facts={"token": 1} if random.random() < 0.1 else {},
                servers={other.id.instance: other.id.incarnation for other in self._locals if random.random() < 0.3},
            )
            caller.made.append(call)
            among.append(CallTarget(number=call.number))
            self._place(caller, call, random.choice(self._locals))
        self._wait(caller, waiter, among, random.randint(1, len(among)))

    def _place(self, caller: _Local, call: OutstandingCall, server: _Local) -> None:
        """Where the call is: being served, queued, answered, not yet seen."""
        where = self._random.random()
        name = party(server.id.instance, f"Do#{call.number}@{caller.id.instance}")
        key = Caller(caller.id.instance, caller.id.incarnation)
        if where < 0.75:
            server.served.append(
                ServedCall(
                    party=name, method="/Do", caller=key, number=call.number, serving=where < 0.5, pool="main", received=1
                )
            )
        elif where < 0.85:
            counted = call.number % 2
            known = server.answered.setdefault(caller.id.instance, [])
            known.append(Answered(number=call.number, sent=counted, received=counted))

    def _lock(self, resource: str) -> None:
        holder, other = self._random.sample(self._locals, 2)
        held_by = [served.party for served in holder.served] or [party(holder.id.instance, "main")]
        holder.holds.append(Hold(party=held_by[0], resource=resource))
        waiter = other.served[-1].party if other.served else party(other.id.instance, "main")
        target: Target = ResourceTarget(resource=resource)
        if self._random.random() < 0.2:
            target = PartyTarget(party=held_by[0])
        elif other.served and self._random.random() < 0.1:
            target = CallerTarget(served=waiter)
        self._wait(other, waiter, [target], 1)

    def _wait(self, local: _Local, waiter: PartyName, among: list[Target], needs: int) -> None:
        random = self._random
        number = self._next()
        local.waits.append(
            LocalWait(
                waiter=waiter,
                number=WaitNumber(number),
                among=tuple(among),
                needs=needs,
                deadline=EPOCH_SECONDS + number if random.random() < self._shape.deadline_share else None,
                since=EPOCH_SECONDS - number if random.random() < 0.8 else None,
                uncoloured=random.random() < self._shape.uncoloured_share,
                what="a lock" if random.random() < 0.2 else "",
            )
        )

    def _close_pools(self, local: _Local) -> None:
        busy = sum(served.serving for served in local.served)
        queued = len(local.served) - busy
        size = busy if queued and self._random.random() < 0.8 else busy + 1
        local.pools.append(Pool(name="main", size=size, queued=queued))

    def _report(self, local: _Local) -> Report:
        facts: Facts = {"token": self._random.randrange(2), "phase": 3.0, "name": "x", "ready": True}
        numbers = [call.number for call in local.made]
        seen: dict[Caller, list[int]] = {}
        for served in local.served:
            if served.caller is not None:
                seen.setdefault(served.caller, []).append(served.number)
        callers = {other.id.instance: other.id for other in self._locals}
        for name, answered in local.answered.items():
            seen.setdefault(Caller(name, callers[name].incarnation), []).extend(each.number for each in answered)
        return Report(
            process=local.id,
            snapshot=SnapshotId(1),
            after=SnapshotId(0),
            cut_at=EPOCH_SECONDS,
            next_number=CallNumber(max(numbers, default=0) + 1),
            activity=self._random.choice(list(Activity)),
            made=tuple(local.made),
            served=tuple(local.served),
            seen=tuple(
                Seen(
                    caller=caller,
                    highest=CallNumber(max(highest)),
                    answered=tuple(each for each in known if each.sent),
                    plain=tuple(each.number for each in known if not each.sent),
                )
                for caller, highest in seen.items()
                for known in [sorted(local.answered.get(caller.process, ()), key=lambda each: each.number)]
            ),
            pools=tuple(local.pools),
            waits=tuple(local.waits),
            holds=tuple(local.holds),
            facts=facts,
            labels={"team": local.id.service},
            lost=int(self._random.random() < 0.02),
        )
