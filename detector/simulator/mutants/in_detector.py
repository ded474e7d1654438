"""The wrong functions with which mutants replace right ones of the detector; each takes the right one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from detector.core.look.suspicion import Suspicion
from detector.core.protocol.initiator import Effect, Initiator
from detector.core.snapshot import Snapshot
from detector.core.waits.cancellation import Cancellation, WaysOut
from detector.core.waits.channels import CallLocation, Channels, Orphan
from detector.core.waits.resolution import Resolution, _Awaited
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
    """Of a pool's workers only the first counts."""

    def held(self: Channels, records: Any, **rest: Any) -> CallLocation:
        place: CallLocation = right(self, records, **rest)
        return replace(place, among=place.among[:1]) if not records[0][1].serving else place

    return held


def busy_like_the_others(right: Function) -> Function:
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


def nobody(_right: Function) -> Function:
    """Whatever contradicts another report, none is set aside."""
    return lambda _orphans: {}


def every_server(_right: Function) -> Function:
    """Of a contradiction the report of the server is set aside, always."""
    return lambda orphans: {orphan.server: orphan.text for orphan in orphans}


def waits_on(right: Function) -> Function:
    """A call that failed stays outstanding forever."""
    return lambda self, made, stamp, now, *, in_doubt=False, **rest: None if in_doubt else right(self, made, stamp, now, **rest)


def suspects_nobody(_right: Function) -> Function:
    """No snapshot ever makes a suspicion."""
    return lambda _self, _snapshot: Suspicion()


def all_unchanged(right: Function) -> Function:
    """Whatever has become of its waits, a suspect is said to be in them still."""
    return lambda suspect, waits: replace(right(suspect, waits), unchanged=True)


def never_doubted(_right: Function) -> Function:
    """Whatever has happened in a process since its cut, it is idle."""
    return lambda *_: ""


def no_deadline(right: Function) -> Function:
    """A wait that will time out counts as one that never does."""
    return lambda wait, *rest: right(replace(wait, deadline=None), *rest)


def all_of_them(right: Function) -> Function:
    """A wait for some is a wait for all."""
    return lambda wait, lasting, _needs: right(wait, lasting, len(lasting))


def any_of_them(right: Function) -> Function:
    """A wait for several is a wait for one of them."""

    def resolve(self: Resolution, report: Report, wait: LocalWait) -> Iterator[Wait]:
        yield from right(self, report, replace(wait, needs=1))

    return resolve


def any_holder(_right: Function) -> Function:
    """A lock is waited for as long as anybody holds a share."""

    def resource(self: Resolution, name: str) -> _Awaited:
        return _Awaited(tuple(hold.party for hold in self._holds.get(name, [])))

    return resource


def next_item_counts_no_items(right: Function) -> Function:
    """Who reads a stream waits for its caller, also when an item is in transit."""

    def next_item(self: Resolution, party: PartyName) -> _Awaited:
        served = self._served.get(party)
        caller = served and served.caller
        call = self._made.get((caller.process, served.number)) if served and caller else None
        if served is None or call is None:
            awaited: _Awaited = right(self, party)
            return awaited
        self._served[party] = replace(served, received=call.sent)
        awaited = right(self, party)
        self._served[party] = served
        return awaited

    return next_item


def reply_counts_no_items(right: Function) -> Function:
    """Who takes the replies of a stream waits for its server, also when an item is in transit."""

    def place(self: Channels, process: Any, call: OutstandingCall) -> CallLocation:
        found: CallLocation = right(self, process, call)
        return replace(found, served=found.served and replace(found.served, sent=call.received))

    return place


def never_cancelled(_right: Function) -> Function:
    """No caller ever cancels."""
    return lambda _self, _party, _budget: WaysOut()


def no_climbing(right: Function) -> Function:
    """A caller that waits for the call is never cancelled itself."""

    def callers(self: Cancellation, served: ServedCall, ways: WaysOut) -> list[PartyName]:
        right(self, served, ways)
        return []

    return callers


def only_handlers(_right: Function) -> Function:
    """Only who serves a call is ever cancelled."""
    return lambda self, party: (served := self._served.get(party)) is not None and served.interruptible


def cancelled_is_on(right: Function) -> Function:
    """A call that is over at its caller is still served forever."""

    def callers(self: Cancellation, served: ServedCall, ways: WaysOut) -> list[PartyName]:
        bound: list[PartyName] = right(self, served, ways)
        ways.by_itself = False
        return bound

    return callers


def all_is_arrived(_right: Function) -> Function:
    """No copy is in transit while a server has another."""
    return lambda self, _call, records, **_: self._held(records)


def never_repeated(right: Function) -> Function:
    """A server that has a call is never one that was left behind."""
    return lambda self, records, **_: right(self, records)


def none_missing(_right: Function) -> Function:
    """Parties of missing members count as free, also in the pessimistic pass."""

    def of_missing(self: Snapshot) -> Bools:
        return np.zeros(len(self.waits.names), np.bool_)

    return of_missing


def releases_nobody(right: Function) -> Function:
    """In the optimistic pass the missing stay where they are."""
    return lambda self, *, ended=None, released=None: right(self, ended=ended)  # noqa: ARG005


def unseen(right: Function) -> Function:
    """What a cut can see of who waits for a task is dropped."""
    return lambda self, waits, ends, now: right(replace(self, waits=()), waits, ends, now)


def lost_is_gone(_right: Function) -> Function:
    """A member that cannot be reached stops being a member."""
    return lambda self, process, now: self.left(process, now)


def finds_no_way_out(right: Function) -> Function:
    """What a second look finds of who may end a wait is dropped."""
    return lambda wait, look: right(wait, look and replace(look, ways_out=()))


def doubts_nothing(right: Function) -> Function:
    """What a look could not tell for certain is taken as seen."""
    return lambda wait, look: right(wait, look and replace(look, doubt=""))


def all_inside(_right: Function) -> Function:
    """A group's snapshot has the waits of everybody."""
    return lambda snapshot, *, name, members: replace(snapshot, ref=replace(snapshot.ref, scope=name, members=len(members)))


def counts_at_work(right: Function) -> Function:
    """What is counted while somebody works counts."""

    def evaluate(self: LostMessage, snapshot: Snapshot) -> Verdict:
        idle = {name: replace(state, activity=Activity.IDLE) for name, state in snapshot.processes.items()}
        verdict: Verdict = right(self, replace(snapshot, processes=idle))
        return verdict

    return evaluate


def through_at_work(_right: Function) -> Function:
    """Who works in the phase is through with it."""
    return lambda *_: True


def believes_clocks(_right: Function) -> Function:
    """A member's times are taken as they are."""
    return lambda report, _begun, _ended: report


def takes_stale(right: Function) -> Function:
    """A report of an older cut counts for the newest snapshot."""

    def reported(self: Initiator, report: Report, now: float) -> list[Effect]:
        effects: list[Effect] = right(self, replace(report, snapshot=SnapshotId(self.next_id - 1)), now)
        return effects

    return reported
