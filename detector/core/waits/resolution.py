"""From the local states of one snapshot to its waits between parties and its messages in transit (docs/design.md section 5)."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
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
)

_STAND_IN = re.compile(r"(.+)~\d+\.\d+")

CHOICES_MAX = 64
"""Of a wait for calls that are each said to be in several places: how many combinations of these are looked at."""


@dataclass(frozen=True, slots=True)
class _Awaited:
    """What one target of a wait resolves to: 1 of ``among`` until ``deadline``, or (if empty) something that ends by itself.

    ``claims``: it is one of these, and nobody knows which.
    """

    among: tuple[PartyName, ...]
    what: str = ""
    deadline: float | None = None
    doubtful: bool = False
    claims: tuple[_Awaited, ...] = ()


_FREE = _Awaited(())


class Resolution:
    """The local states of one snapshot, resolved against each other."""

    def __init__(self, reports: Mapping[ProcessName, Report], missing: Sequence[ProcessId]) -> None:
        """As :class:`~detector.core.waits.channels.Channels`."""
        self._reports = reports
        self._missing = frozenset(member.instance for member in missing)
        self.channels = Channels(reports, missing)
        self._made: dict[tuple[ProcessName, CallNumber], OutstandingCall] = {
            (name, call.number): call for name in reports for call in reports[name].made
        }
        self._places: dict[tuple[ProcessName, int], CallLocation] = {}
        """By process and identity of a call, which its report keeps alive: its waits and its messages both ask for it."""
        self._calls: dict[tuple[ProcessName, CallNumber, bool], _Awaited] = {}
        self._resources: dict[str, _Awaited] = {}
        """What calls and resources resolve to: thousands of parties may wait for the same one."""
        self._served: dict[PartyName, ServedCall] = {c.party: c for r in reports.values() for c in r.served}
        self._cancellation = Cancellation(reports, self._missing, self._made, self._served)
        self._holds: dict[str, list[Hold]] = {}
        for name in sorted(reports):
            for hold in reports[name].holds:
                self._holds.setdefault(hold.resource, []).append(hold)

    def waits(self) -> Iterator[Wait]:
        """Every wait that does not end by itself, between parties."""
        for name in sorted(self._reports):
            yield from self.waits_of(name)

    def waits_of(self, name: ProcessName) -> Iterator[Wait]:
        """Those of one process."""
        report, budget = self._reports[name], Budget()
        for wait in report.waits:
            yield from self._unless_cancelled(wait, map(budget.bounded, self._resolve(report, wait)), budget)

    def _unless_cancelled(self, wait: LocalWait, resolved: Iterator[Wait], budget: Budget) -> Iterator[Wait]:
        """What a wait resolves to if its waiter may also be freed by a caller that cancels the call it serves."""
        ways = self._cancellation.ways(wait.waiter, budget)
        if not (ways.parties or ways.by_itself or ways.doubtful):
            yield from resolved
        elif not ways.by_itself:
            for index, one in enumerate(resolved):
                yield from with_ways_out(one, wait, ways, index)

    def _resolve(self, report: Report, wait: LocalWait) -> Iterator[Wait]:
        """One local wait as waits for parties; a target that may come by itself counts as come."""
        awaited = [self._awaited(report, wait, target) for target in wait.among]
        yield from _lasting(wait, awaited)
        if any(target.claims for target in awaited):  # each of them may be the true one, and none is for certain
            for chosen in islice(product(*(target.claims or (target,) for target in awaited)), CHOICES_MAX):
                yield from _lasting(wait.known_to_last(certain=False), chosen)

    def _awaited(self, report: Report, wait: LocalWait, target: Target) -> _Awaited:
        match target:
            case PartyTarget(party=party):
                return _Awaited((party,), wait.what or party)
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
                return self._resources[resource]

    def _call(self, report: Report, wait: LocalWait, number: CallNumber) -> _Awaited:
        call = self._made.get((report.process.instance, number))
        if call is None or call.doubtful:  # it is over, or in doubt: no wait any more (rule 8)
            return _FREE
        place = self._place(report.process, call)
        if wait.uncoloured and place.served is not None and place.served.sent != call.received:
            return _FREE  # an item is in transit, or the counts are of different times
        claims = tuple(_Awaited(one.among, one.what, _earlier(call.deadline, one.served)) for one in place.claims)
        ends = [claim.deadline for claim in claims] or [_earlier(call.deadline, place.served)]
        return _Awaited(place.among, place.what, _first(ends), place.repeated, claims)

    def _next_item(self, party: PartyName) -> _Awaited:
        """The next item of the stream that ``party`` reads: its caller must send it."""
        served = self._served.get(party)
        if served is None or served.caller is None:
            return _FREE
        if served.caller.process in self._missing:
            return _Awaited((PartyName(served.caller.process),), f"the next item of {served.caller.process}'s stream")
        source = self._reports.get(served.caller.process)
        call = self._made.get((served.caller.process, served.number))
        if source is None or source.process.incarnation != served.caller.incarnation or call is None:
            return _FREE
        if call.party is None or call.doubtful or call.sent != served.received:
            return _FREE
        return _Awaited((call.party,), f"the next item of {call.party}'s stream")

    def _resource(self, resource: str) -> _Awaited:
        holds = self._holds.get(resource, [])
        if holds and len(holds) >= max(hold.capacity for hold in holds):
            holders = tuple(dict.fromkeys(hold.party for hold in holds))
            return _Awaited(holders, resource)
        if self._missing and process_of(PartyName(resource)) not in self._reports:  # fleet-wide: a missing member may hold it
            return _Awaited(self.channels.absent, f"{resource}, holder unknown")
        return _FREE

    def in_transit(self) -> Iterator[Message]:
        """Every message that has been sent and not received, and each fact that travels."""
        for name in sorted(self._reports):
            yield from self.sent_by(name)
        yield from self.given_up({fact for report in self._reports.values() for fact in report.facts})

    def sent_by(self, name: ProcessName) -> Iterator[Message]:
        """The messages of one process's calls."""
        report = self._reports[name]
        for call in report.made:
            yield from self._messages(report, call, self._place(report.process, call))

    def _place(self, process: ProcessId, call: OutstandingCall) -> CallLocation:
        at = process.instance, id(call)
        known = self._places.get(at)
        if known is None:
            known = self._places[at] = self.channels.place(process, call)
        return known

    def given_up(self, facts: Collection[str]) -> Iterator[Message]:
        """The requests that their callers have abandoned, which may carry any of ``facts``."""
        unknown = dict.fromkeys(sorted(facts), UNKNOWN_FACT)
        for source, server, served in self.channels.given_up() if unknown else ():
            yield Message(source=source, target=server, facts=unknown, what=f"request {served.method} (given up)")

    def settled_doubts(self) -> dict[ProcessId, tuple[CallNumber, ...]]:
        """By caller: its calls in doubt that a server has answered, so that it need remember them no longer (rule 8)."""
        found: dict[ProcessId, tuple[CallNumber, ...]] = {}
        for name in sorted(self._reports):
            process = self._reports[name].process
            doubts = [call for call in self._reports[name].made if call.doubtful]
            answered = [call.number for call in doubts if self._place(process, call).where is Where.REPLY_IN_TRANSIT]
            if answered:
                found[process] = tuple(answered)
        return found

    def _messages(self, report: Report, call: OutstandingCall, place: CallLocation) -> Iterator[Message]:
        source = report.process.instance
        match place.where:
            case Where.SERVED | Where.QUEUED:
                yield from self._between(source, call, place)
            case Where.REPLY_IN_TRANSIT:
                facts = place.answered.facts if place.answered else NO_FACTS
                if (
                    place.answered and not place.answered.taken
                ):  # refused: what it carried goes back to its caller, who keeps it
                    facts = call.facts
                if call.doubtful and place.answered and not place.answered.taken and call.facts:
                    facts = dict.fromkeys(call.facts, UNKNOWN_FACT)
                    yield Message(source=source, target=source, facts=facts, what=f"refusal of {call.method} (in doubt)")
                elif not call.doubtful:
                    yield Message(source=place.server or source, target=source, facts=facts, what=f"reply to {call.method}")
            case Where.MISSING if call.doubtful:  # perhaps it is over: only who is missing could tell
                return
            case Where.MISSING | Where.UNKNOWN:  # perhaps received, and what it carried has gone on long ago
                facts = dict.fromkeys(call.facts, UNKNOWN_FACT)
                yield Message(source=source, target=None, facts=facts, what=f"request {call.method}")
            case _:
                if call.doubtful:  # perhaps it never left, and its caller has what it carried
                    facts = dict.fromkeys(call.facts, UNKNOWN_FACT)
                    yield Message(source=source, target=None, facts=facts, what=f"request {call.method} (in doubt)")
                else:
                    yield Message(source=source, target=None, facts=call.facts, what=f"request {call.method}")

    def _between(self, source: ProcessName, call: OutstandingCall, place: CallLocation) -> Iterator[Message]:
        """Facts not yet taken, and stream items in transit, between a caller and the server that has its call."""
        served = place.served
        if served is None:
            return
        if call.facts and not served.taken:
            yield Message(source=source, target=place.server, facts=call.facts, what=f"request {call.method}")
        if call.sent > served.received:
            yield Message(source=source, target=place.server, what=f"{call.sent - served.received} items of {call.method}")
        if served.sent > call.received and not call.doubtful:
            items = served.sent - call.received
            yield Message(source=process_of(served.party), target=source, what=f"{items} items of {call.method}")


def _lasting(wait: LocalWait, awaited: Sequence[_Awaited]) -> Iterator[Wait]:
    """A wait for targets, without those that end by themselves."""
    lasting = [target for target in awaited if target.among]
    if any(target.doubtful for target in lasting):
        wait = wait.known_to_last(certain=False)
    needs = wait.needs - (len(awaited) - len(lasting))
    if needs <= 0:
        return
    if needs == len(lasting):  # all of them: each is a separate wait, and all must end
        for target in lasting:
            yield _wait(wait.ending(target.deadline), target.among, 1, target.what or wait.what)
        return
    ends = sorted(target.deadline for target in lasting if target.deadline is not None)
    if not ends:
        yield from _some(wait, lasting, needs)
    elif len(ends) >= needs:  # deadlines alone end it, at the latest when enough of them have passed
        yield from _some(wait.ending(ends[needs - 1]), lasting, needs)
    else:  # until the last deadline it is the one wait; after it, what is left of it: both must end
        yield from _some(wait.ending(ends[-1]), lasting, needs)
        endless = [target for target in lasting if target.deadline is None]
        yield from _some(wait, endless, needs - len(ends))


def _some(wait: LocalWait, lasting: Sequence[_Awaited], needs: int) -> Iterator[Wait]:
    """``needs`` of several targets, each itself 1 of a set: an auxiliary party represents each set of several."""
    if needs == len(lasting):
        for target in lasting:
            yield _wait(wait, target.among, 1, target.what or wait.what)
    elif needs == 1:
        among = tuple(party for target in lasting for party in target.among)
        yield _wait(wait, among, 1, " or ".join(dict.fromkeys(target.what for target in lasting)))
    elif len({target.among for target in lasting}) == len(lasting) and all(len(target.among) == 1 for target in lasting):
        yield _wait(wait, tuple(target.among[0] for target in lasting), needs, wait.what)
    else:
        yield from _stood_for(wait, lasting, needs)


def owner_of(stand: PartyName) -> PartyName | None:
    """The party for whose wait the auxiliary party of this name (``party~3.1``) exists; None for any other name."""
    found = _STAND_IN.fullmatch(stand) if "~" in stand else None
    return None if found is None else PartyName(found[1])


def _stood_for(wait: LocalWait, lasting: Sequence[_Awaited], needs: int) -> Iterator[Wait]:
    stands = [PartyName(f"{wait.waiter}~{wait.number}.{index}") for index in range(1, len(lasting) + 1)]
    for stand, target in zip(stands, lasting, strict=True):
        yield Wait(
            waiter=stand,
            among=target.among,
            since=wait.since,
            number=wait.number,
            uncoloured=wait.in_doubt,
            what=target.what,
        )
    yield _wait(wait, tuple(stands), needs, wait.what)


def _earlier(deadline: float | None, served: ServedCall | None) -> float | None:
    """The deadline of a call as its caller knows it, or as its server does: an interceptor or gRPC itself may have set one."""
    return _first((deadline, served.deadline if served is not None else None))


def _first(ends: Iterable[float | None]) -> float | None:
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
