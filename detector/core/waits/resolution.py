"""Resolves the local states of one snapshot to waits between parties and messages in transit (docs/design.md section 5)."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, product

from detector.core.waits.budget import Budget
from detector.core.waits.cancellation import Cancellation, with_ways_out
from detector.core.waits.channels import CallLocation, Channels, Where
from stilltrue.model import NO_FACTS, UNKNOWN_FACT, CallNumber, Message, PartyName, ProcessId, ProcessName, Wait, process_of
from stilltrue.protocol.report import (
    CallerTarget,
    CallTarget,
    Hold,
    LocalWait,
    OutstandingCall,
    PartyTarget,
    Report,
    ResourceTarget,
    ServedCall,
    Target,
    next_request_of,
)

_AUXILIARY = re.compile(r"(.+)~\d+\.\d+")

CHOICES_MAX = 64
"""Bound on the combinations that are tried for a wait whose calls are each claimed by several servers."""


@dataclass(frozen=True, slots=True)
class _ResolvedTarget:
    """A resolved target of a wait: 1 of ``among`` until ``deadline``, or, if empty, something that ends by itself.

    ``claims``: it is one of these, and it is unknown which. ``way_out``: a party that may end the wait in another way.
    """

    among: tuple[PartyName, ...]
    what: str = ""
    deadline: float | None = None
    doubtful: bool = False
    claims: tuple[_ResolvedTarget, ...] = ()
    way_out: bool = False

    def described(self, what: str, resource: str) -> _ResolvedTarget:
        """The same with the waiter's own words, such as a file's path, before the name of the resource."""
        if not self.among or not what or resource in what:
            return self
        return replace(self, what=self.what.replace(resource, f"{what} ({resource})", 1))


_FREE = _ResolvedTarget(())


class Resolution:
    """The local states of one snapshot, resolved against each other."""

    def __init__(self, reports: Mapping[ProcessName, Report], missing: Sequence[ProcessId]) -> None:
        """Arguments as for :class:`~detector.core.waits.channels.Channels`."""
        self._reports = reports
        self._missing = frozenset(member.instance for member in missing)
        self.channels = Channels(reports, missing)
        self._made: dict[tuple[ProcessName, CallNumber], OutstandingCall] = {
            (name, call.number): call for name in reports for call in reports[name].made
        }
        self._locations: dict[tuple[ProcessName, int], CallLocation] = {}
        """Cache by process and ``id`` of the call (its report keeps it alive): waits and messages both need the location."""
        self._calls: dict[tuple[ProcessName, CallNumber, bool], _ResolvedTarget] = {}
        self._resources: dict[str, _ResolvedTarget] = {}
        """Caches: thousands of parties may wait for the same call or resource."""
        self._served: dict[PartyName, ServedCall] = {c.party: c for r in reports.values() for c in r.served}
        self._cancellation = Cancellation(reports, self._missing, self._made, self._served)
        self._holds: dict[str, list[Hold]] = {}
        for name in sorted(reports):
            for hold in reports[name].holds:
                self._holds.setdefault(hold.resource, []).append(hold)

    def waits(self) -> Iterator[Wait]:
        """All waits between parties that do not end by themselves."""
        for name in sorted(self._reports):
            yield from self.waits_of(name)

    def waits_of(self, name: ProcessName) -> Iterator[Wait]:
        """The waits of one process."""
        report, budget = self._reports[name], Budget()
        for wait in report.waits:
            yield from self._unless_cancelled(wait, map(budget.bounded, self._resolve(report, wait)), budget)

    def _unless_cancelled(self, wait: LocalWait, resolved: Iterator[Wait], budget: Budget) -> Iterator[Wait]:
        """Adjust what a wait resolves to, since the waiter is also freed if a caller cancels the call it serves."""
        ways = self._cancellation.ways(wait.waiter, budget)
        if not (ways.parties or ways.by_itself or ways.doubtful):
            yield from resolved
        elif not ways.by_itself:
            for index, one in enumerate(resolved):
                yield from with_ways_out(one, wait, ways, index)

    def _resolve(self, report: Report, wait: LocalWait) -> Iterator[Wait]:
        """Resolve one local wait to waits for parties; a target that may come by itself counts as satisfied."""
        targets = [self._target(report, wait, target) for target in wait.among]
        yield from _lasting(wait, targets)
        if any(target.claims for target in targets):  # any claim may be the true one, and none certainly is
            for chosen in islice(product(*(target.claims or (target,) for target in targets)), CHOICES_MAX):
                yield from _lasting(wait.with_certainty(certain=False), chosen)

    def _target(self, report: Report, wait: LocalWait, target: Target) -> _ResolvedTarget:
        match target:
            case PartyTarget(party=party):
                way_out = _is_way_out(wait)
                return _ResolvedTarget((party,), f"an action of {party}" if way_out else wait.what or party, way_out=way_out)
            case CallTarget(number=number):
                call = report.process.instance, number, wait.uncoloured
                if call not in self._calls:
                    self._calls[call] = self._call(report, wait, number)
                return self._calls[call]
            case CallerTarget(served=served):
                return self._next_item(served)
            case ResourceTarget(resource=resource):
                if resource not in self._resources:
                    self._resources[resource] = self._resource(resource)
                found, alone = self._resources[resource], sum(isinstance(one, ResourceTarget) for one in wait.among) == 1
                return found.described(wait.what, resource) if alone else found

    def _call(self, report: Report, wait: LocalWait, number: CallNumber) -> _ResolvedTarget:
        call = self._made.get((report.process.instance, number))
        if call is None or call.doubtful:  # over or in doubt, so no longer a wait (protocol rule 8)
            return _FREE
        location = self._locate(report.process, call)
        if wait.uncoloured and location.served is not None and location.served.sent != call.received:
            return _FREE  # an item is in transit, or the counts are from different times
        claims = tuple(_ResolvedTarget(one.among, one.what, _deadline(call, one.served)) for one in location.claims)
        ends = [claim.deadline for claim in claims] or [_deadline(call, location.served)]
        return _ResolvedTarget(location.among, location.what, _earliest(ends), location.repeated, claims)

    def _next_item(self, party: PartyName) -> _ResolvedTarget:
        """The next item of the stream that ``party`` reads, which its caller must send."""
        served = self._served.get(party)
        if served is None or served.caller is None:
            return _FREE
        if served.caller.process in self._missing:
            return _ResolvedTarget((PartyName(served.caller.process),), f"the next item of {served.caller.process}'s stream")
        source = self._reports.get(served.caller.process)
        call = self._made.get((served.caller.process, served.number))
        if source is None or source.process.incarnation != served.caller.incarnation or call is None:
            return _FREE
        if call.doubtful or call.sent != served.received:
            return _FREE
        if call.party is None:
            return self._fed(source, call)
        return _ResolvedTarget((call.party,), f"the next item of {call.party}'s stream")

    def _fed(self, source: Report, call: OutstandingCall) -> _ResolvedTarget:
        """The next item of a call that no party has made: a thread feeds it, or a party that waits for the call cancels it.

        If none waits for the call, it is unknown who may cancel it.
        """
        feeding = [hold.party for hold in self._holds.get(next_request_of(source.process.instance, call.number), ())]
        target = CallTarget(number=call.number)
        waiting = [wait.waiter for wait in source.waits if target in wait.among]
        if not feeding or not waiting:
            return _FREE
        return _ResolvedTarget(tuple(dict.fromkeys((*feeding, *waiting))), "the next item of its caller's stream")

    def _resource(self, resource: str) -> _ResolvedTarget:
        holds = self._holds.get(resource, [])
        if holds and len(holds) >= max(hold.capacity for hold in holds):
            holders = tuple(dict.fromkeys(hold.party for hold in holds))
            return _ResolvedTarget(holders, resource)
        if self._missing and process_of(PartyName(resource)) not in self._reports:  # fleet-wide: a missing member may hold it
            return _ResolvedTarget(self.channels.absent, f"{resource}, holder unknown")
        return _FREE

    def in_transit(self) -> Iterator[Message]:
        """All messages that have been sent and not received, and all facts in transit."""
        for name in sorted(self._reports):
            yield from self.sent_by(name)
        yield from self.abandoned({fact for report in self._reports.values() for fact in report.facts})

    def sent_by(self, name: ProcessName) -> Iterator[Message]:
        """The messages in transit of one process's calls."""
        report = self._reports[name]
        for call in report.made:
            yield from self._messages(report, call, self._locate(report.process, call))

    def _locate(self, process: ProcessId, call: OutstandingCall) -> CallLocation:
        key = process.instance, id(call)
        known = self._locations.get(key)
        if known is None:
            known = self._locations[key] = self.channels.locate(process, call)
        return known

    def abandoned(self, facts: Collection[str]) -> Iterator[Message]:
        """The requests that their callers have abandoned, which may carry any of ``facts``."""
        unknown = dict.fromkeys(sorted(facts), UNKNOWN_FACT)
        for source, server, served in self.channels.abandoned() if unknown else ():
            yield Message(source=source, target=server, facts=unknown, what=f"request {served.method} (abandoned)")

    def settled_doubts(self) -> dict[ProcessId, tuple[CallNumber, ...]]:
        """By caller, its calls in doubt that a server has answered; it need not remember them any longer (protocol rule 8).

        Except those whose facts were not taken: their caller may be about to set the facts again, or to send them once more.
        """
        found: dict[ProcessId, tuple[CallNumber, ...]] = {}
        for name in sorted(self._reports):
            process = self._reports[name].process
            doubts = [call for call in self._reports[name].made if call.doubtful]
            answered = [call.number for call in doubts if self._is_settled(process, call)]
            if answered:
                found[process] = tuple(answered)
        return found

    def _is_settled(self, process: ProcessId, call: OutstandingCall) -> bool:
        location = self._locate(process, call)
        taken = location.answered is None or location.answered.taken
        return location.where is Where.REPLY_IN_TRANSIT and (taken or not call.facts)

    def _messages(self, report: Report, call: OutstandingCall, location: CallLocation) -> Iterator[Message]:
        source = report.process.instance
        match location.where:
            case Where.SERVED | Where.QUEUED:
                yield from self._between(source, call, location)
            case Where.REPLY_IN_TRANSIT:
                answered = location.answered
                refused = answered is not None and not answered.taken  # the facts it carried go back to the caller
                facts = call.facts if refused else answered.facts if answered else NO_FACTS
                if call.doubtful and refused and call.facts:
                    facts = dict.fromkeys(call.facts, UNKNOWN_FACT)
                    yield Message(source=source, target=source, facts=facts, what=f"refusal of {call.method} (in doubt)")
                elif not call.doubtful:
                    yield Message(source=location.server or source, target=source, facts=facts, what=f"reply to {call.method}")
            case Where.UNKNOWN if call.doubtful and location.served and location.served.taken:  # its server has the facts
                return
            case Where.MISSING if call.doubtful:  # it may be over: only the missing members know
                return
            case Where.MISSING | Where.UNKNOWN:  # it may have been received long ago, with the facts it carried
                facts = dict.fromkeys(call.facts, UNKNOWN_FACT)
                yield Message(source=source, target=None, facts=facts, what=f"request {call.method}")
            case _:
                if call.doubtful:  # it may never have left, and its caller still has the facts
                    facts = dict.fromkeys(call.facts, UNKNOWN_FACT)
                    yield Message(source=source, target=None, facts=facts, what=f"request {call.method} (in doubt)")
                else:
                    yield Message(source=source, target=None, facts=call.facts, what=f"request {call.method}")

    def _between(self, source: ProcessName, call: OutstandingCall, location: CallLocation) -> Iterator[Message]:
        """Facts not yet taken, and stream items in transit, between a caller and the server that has its call."""
        served = location.served
        if served is None:
            return
        if call.facts and not served.taken:  # those of a failed call may be with its caller again, or taken from another copy
            taken = location.answered is not None and location.answered.taken
            facts = dict.fromkeys(call.facts, UNKNOWN_FACT) if call.doubtful or taken else call.facts
            yield Message(source=source, target=location.server, facts=facts, what=f"request {call.method}")
        if call.sent > served.received:
            yield Message(source=source, target=location.server, what=f"{call.sent - served.received} items of {call.method}")
        if served.sent > call.received and not call.doubtful:
            items = served.sent - call.received
            yield Message(source=process_of(served.party), target=source, what=f"{items} items of {call.method}")


def _is_way_out(wait: LocalWait) -> bool:
    """Whether the parties in the wait's targets may end it in another way than the call or resource that its text names."""
    return wait.needs < len(wait.among) and any(isinstance(one, CallTarget | ResourceTarget) for one in wait.among)


def _lasting(wait: LocalWait, targets: Sequence[_ResolvedTarget]) -> Iterator[Wait]:
    """Resolve a wait, dropping the targets that come by themselves."""
    lasting = [target for target in targets if target.among]
    if any(target.doubtful for target in lasting):
        wait = wait.with_certainty(certain=False)
    needs = wait.needs - (len(targets) - len(lasting))
    if needs <= 0:
        return
    if needs == len(lasting):  # all are needed: each is a separate wait, and all must end
        for target in lasting:
            yield _wait(wait.ending(target.deadline), target.among, 1, target.what or wait.what)
        return
    ends = sorted(target.deadline for target in lasting if target.deadline is not None)
    if not ends:
        yield from _k_of_n(wait, lasting, needs)
    elif len(ends) >= needs:  # deadlines alone end it, at the latest when enough of them have passed
        yield from _k_of_n(wait.ending(ends[needs - 1]), lasting, needs)
    else:  # the whole wait holds until the last deadline, the rest of it holds beyond: both must end
        yield from _k_of_n(wait.ending(ends[-1]), lasting, needs)
        endless = [target for target in lasting if target.deadline is None]
        yield from _k_of_n(wait, endless, needs - len(ends))


def _k_of_n(wait: LocalWait, lasting: Sequence[_ResolvedTarget], needs: int) -> Iterator[Wait]:
    """A wait for ``needs`` of several targets, each itself 1 of a set; an auxiliary party represents each set of several."""
    if needs == len(lasting):
        for target in lasting:
            yield _wait(wait, target.among, 1, target.what or wait.what)
    elif needs == 1:
        among = tuple(party for target in lasting for party in target.among)
        named = {party for target in lasting if not target.way_out for party in target.among}
        texts = (target.what for target in lasting if not (target.way_out and named.issuperset(target.among)))
        yield _wait(wait, among, 1, " or ".join(dict.fromkeys(texts)))
    elif len({target.among for target in lasting}) == len(lasting) and all(len(target.among) == 1 for target in lasting):
        yield _wait(wait, tuple(target.among[0] for target in lasting), needs, wait.what)
    else:
        yield from _with_auxiliaries(wait, lasting, needs)


def owner_of(auxiliary: PartyName) -> PartyName | None:
    """The party whose wait an auxiliary party (``party~3.1``) represents a part of; None for any other name."""
    found = _AUXILIARY.fullmatch(auxiliary) if "~" in auxiliary else None
    return None if found is None else PartyName(found[1])


def _with_auxiliaries(wait: LocalWait, lasting: Sequence[_ResolvedTarget], needs: int) -> Iterator[Wait]:
    auxiliaries = [PartyName(f"{wait.waiter}~{wait.number}.{index}") for index in range(1, len(lasting) + 1)]
    for auxiliary, target in zip(auxiliaries, lasting, strict=True):
        yield Wait(
            waiter=auxiliary,
            among=target.among,
            since=wait.since,
            number=wait.number,
            uncoloured=wait.in_doubt,
            what=target.what,
        )
    yield _wait(wait, tuple(auxiliaries), needs, wait.what)


def _deadline(call: OutstandingCall, served: ServedCall | None) -> float | None:
    """The earlier of a call's deadlines at its caller and at its server, which an interceptor or gRPC itself may have set."""
    return _earliest((call.deadline, served.deadline if served is not None else None))


def _earliest(ends: Iterable[float | None]) -> float | None:
    return min((end for end in ends if end is not None), default=None)


def _wait(wait: LocalWait, among: tuple[PartyName, ...], needs: int, what: str) -> Wait:
    return Wait(
        waiter=wait.waiter,
        among=among,
        needs=needs,
        deadline=wait.deadline,
        since=wait.since,
        number=wait.number,
        uncoloured=wait.in_doubt,
        what=what,
    )
