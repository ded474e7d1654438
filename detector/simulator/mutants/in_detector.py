"""Mutant functions for the detector; each takes the original function."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from detector.core.protocol.initiator import Effect, Initiator
from detector.core.snapshot import Snapshot
from detector.core.verification.suspicion import Suspicion
from detector.core.waits.cancellation import Cancellation, WaysOut
from detector.core.waits.channels import CallLocation, Channels, Orphan
from detector.core.waits.resolution import Resolution, _ResolvedTarget
from detector.graph.columns import Bools
from detector.predicates.lost_message import LostMessage
from stilltrue.model import Activity, CallNumber, PartyName, ProcessId, SnapshotId, Verdict, Wait
from stilltrue.protocol.report import LocalWait, OutstandingCall, Report, ServedCall

Function = Callable[..., Any]


def sees_no_reply(right: Function) -> Function:
    """The detector does not see which calls were answered."""

    def init(self: Channels, *rest: Any) -> None:
        right(self, *rest)
        self._seen.clear()

    return init


def settles_all(_right: Function) -> Function:
    """Every call in doubt counts as answered."""

    def settled(self: Resolution) -> dict[ProcessId, tuple[CallNumber, ...]]:
        reports = self._reports.values()
        return {each.process: tuple(call.number for call in each.made if call.doubtful) for each in reports}

    return settled


def first_worker(right: Function) -> Function:
    """Only the first of a pool's workers counts."""

    def held(self: Channels, records: Any, **rest: Any) -> CallLocation:
        place: CallLocation = right(self, records, **rest)
        return replace(place, among=place.among[:1]) if not records[0][1].serving else place

    return held


def blocked_by_earlier_servers(right: Function) -> Function:
    """A call that no member has seen waits for all busy workers of the servers that have answered on its channel."""

    def unseen(self: Channels, call: OutstandingCall) -> CallLocation:
        place: CallLocation = right(self, call)
        busy = tuple(party for view in self._pools.values() if view.process in call.servers for party in view.busy)
        return place if place.among else replace(place, among=busy)

    return unseen


def strict_orphans(_right: Function) -> Function:
    """A call counts as unsent one number too early."""

    def orphans(self: Channels) -> list[Orphan]:
        reports = self._reports
        return [
            Orphan(name, seen.caller.process, f"{name} had seen call {seen.highest}")
            for name in sorted(reports)
            for seen in reports[name].seen
            if seen.caller.process in reports and seen.highest >= reports[seen.caller.process].next_number - 1 > 0
        ]

    return orphans


def sets_none_aside(_right: Function) -> Function:
    """No report is set aside, even if it contradicts another."""
    return lambda _orphans: {}


def every_server(_right: Function) -> Function:
    """In every contradiction the server's report is set aside."""
    return lambda orphans: {orphan.server: orphan.text for orphan in orphans}


def stays_outstanding(right: Function) -> Function:
    """A call that failed stays outstanding forever."""
    return lambda self, made, stamp, now, *, in_doubt=False, **rest: None if in_doubt else right(self, made, stamp, now, **rest)


def suspects_none(_right: Function) -> Function:
    """No snapshot ever yields a suspicion."""
    return lambda _self, _snapshot: Suspicion()


def all_unchanged(right: Function) -> Function:
    """A suspect's waits are always reported as unchanged."""
    return lambda suspect, waits: replace(right(suspect, waits), unchanged=True)


def never_doubted(_right: Function) -> Function:
    """A process counts as idle, whatever has happened in it since its cut."""
    return lambda *_: ""


def no_deadline(right: Function) -> Function:
    """A wait with a deadline counts as one without."""
    return lambda wait, *rest: right(replace(wait, deadline=None), *rest)


def needs_all(right: Function) -> Function:
    """A k-of-n wait needs all its targets."""
    return lambda wait, lasting, _needs: right(wait, lasting, len(lasting))


def needs_one(right: Function) -> Function:
    """A k-of-n wait needs only one of its targets."""

    def resolve(self: Resolution, report: Report, wait: LocalWait) -> Iterator[Wait]:
        yield from right(self, report, replace(wait, needs=1))

    return resolve


def any_holder(_right: Function) -> Function:
    """A lock blocks as long as any party holds a share."""

    def resource(self: Resolution, name: str) -> _ResolvedTarget:
        return _ResolvedTarget(tuple(hold.party for hold in self._holds.get(name, [])))

    return resource


def next_item_counts_no_items(right: Function) -> Function:
    """The reader of a stream waits for its caller even if an item is in transit."""

    def next_item(self: Resolution, party: PartyName) -> _ResolvedTarget:
        served = self._served.get(party)
        caller = served and served.caller
        call = self._made.get((caller.process, served.number)) if served and caller else None
        if served is None or call is None:
            awaited: _ResolvedTarget = right(self, party)
            return awaited
        self._served[party] = replace(served, received=call.sent)
        awaited = right(self, party)
        self._served[party] = served
        return awaited

    return next_item


def reply_counts_no_items(right: Function) -> Function:
    """The caller of a stream waits for its server even if an item is in transit."""

    def place(self: Channels, process: Any, call: OutstandingCall) -> CallLocation:
        found: CallLocation = right(self, process, call)
        return replace(found, served=found.served and replace(found.served, sent=call.received))

    return place


def never_cancelled(_right: Function) -> Function:
    """No caller ever cancels."""
    return lambda _self, _party, _budget: WaysOut()


def callers_never_cancelled(right: Function) -> Function:
    """A caller that waits for the call is never itself cancelled."""

    def callers(self: Cancellation, served: ServedCall, ways: WaysOut) -> list[PartyName]:
        right(self, served, ways)
        return []

    return callers


def only_handlers(_right: Function) -> Function:
    """Only parties that serve a call are ever cancelled."""
    return lambda self, party: (served := self._served.get(party)) is not None and served.interruptible


def serves_cancelled_forever(right: Function) -> Function:
    """A call that is over at its caller is still served forever."""

    def callers(self: Cancellation, served: ServedCall, ways: WaysOut) -> list[PartyName]:
        bound: list[PartyName] = right(self, served, ways)
        ways.by_itself = False
        return bound

    return callers


def no_copy_in_transit(_right: Function) -> Function:
    """No copy is in transit while a server has another."""
    return lambda self, _call, records, **_: self._held(records)


def never_repeated(right: Function) -> Function:
    """A server that has a call never has lost its caller."""
    return lambda self, records, **_: right(self, records)


def none_missing(_right: Function) -> Function:
    """Parties of missing members count as free, also in the pessimistic pass."""

    def of_missing(self: Snapshot) -> Bools:
        return np.zeros(len(self.waits.names), np.bool_)

    return of_missing


def releases_none(right: Function) -> Function:
    """Missing parties are not released in the optimistic pass."""
    return lambda self, *, ended=None, released=None: right(self, ended=ended)  # noqa: ARG005


def drops_observed_waits(right: Function) -> Function:
    """The waits for tasks that a cut sees are dropped."""
    return lambda self, waits, ends, now: right(replace(self, waits=()), waits, ends, now)


def lost_is_gone(_right: Function) -> Function:
    """A member that cannot be reached stops being a member."""
    return lambda self, process, now: self.left(process, now)


def finds_no_way_out(right: Function) -> Function:
    """The ways out that a second look finds are dropped."""
    return lambda wait, look: right(wait, look and replace(look, ways_out=()))


def doubts_nothing(right: Function) -> Function:
    """The doubts of a look are ignored."""
    return lambda wait, look: right(wait, look and replace(look, doubt=""))


def scope_has_all_waits(_right: Function) -> Function:
    """A scope's snapshot contains all waits."""
    return lambda snapshot, *, name, members: replace(snapshot, ref=replace(snapshot.ref, scope=name, members=len(members)))


def counts_while_active(right: Function) -> Function:
    """Messages are counted even while a process is active."""

    def evaluate(self: LostMessage, snapshot: Snapshot) -> Verdict:
        idle = {name: replace(state, activity=Activity.IDLE) for name, state in snapshot.processes.items()}
        verdict: Verdict = right(self, replace(snapshot, processes=idle))
        return verdict

    return evaluate


def finishes_while_active(_right: Function) -> Function:
    """An active process has finished its phase."""
    return lambda *_: True


def believes_clocks(_right: Function) -> Function:
    """A member's times are not converted."""
    return lambda report, _begun, _ended: report


def accepts_stale(right: Function) -> Function:
    """A report of an older cut counts for the newest snapshot."""

    def reported(self: Initiator, report: Report, now: float) -> list[Effect]:
        effects: list[Effect] = right(self, replace(report, snapshot=SnapshotId(self.next_id - 1)), now)
        return effects

    return reported
