"""The recorder: what one process remembers of its calls and waits, and how it cuts. The same class runs live and simulated.

The rules (docs/design.md section 3; the code names them by number):

1. Colour. Every message carries its sender's stamp: source, call number, colour.
2. Cut once, in time. On a marker for snapshot n, or a message of colour n, a process of a lower colour c cuts first, then
   handles the message; the cut serves every snapshot in (c, n].
3. The sender remembers. A call is outstanding at its caller until its outcome is known there; the server remembers the numbers
   it has seen down to the caller's floor.
4. Channels by difference. The report says what is outstanding, served, queued and answered; the detector subtracts.
5. No orphans, checked. The report says ``next_number``; no server may have seen it or any above it.
6. An explicit marker wakes the quiet ones.
7. Atomic events. Facts change in the same step as the message they belong to.
8. A failed call is in doubt when its caller cannot tell whether it was received, until a stated bound passes.
10. Look again before accusing. Asked to, it says of each suspect whether it is still in the very same waits, and how many steps
   it has recorded: the same number as at the cut means that nothing has happened since.

One method per happening; each returns its effects: numbers, stamps, and a :class:`~stilltrue.protocol.report.Report`
if it made the process cut. Nothing here does I/O, reads a clock, or knows threads: callers bring the time and hold a
lock around each call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from typing import Any

from stilltrue.model import (
    NO_FACTS,
    Activity,
    CallNumber,
    Fact,
    Facts,
    PartyName,
    ProcessId,
    SnapshotId,
    WaitNumber,
)
from stilltrue.protocol.ledger import NO_WAIT, ChannelRecord, ClientCall, ServerCall, is_blocked
from stilltrue.protocol.look import Look, LookRequest, PartyLook, Suspect
from stilltrue.protocol.memory import CallerMemory
from stilltrue.protocol.report import Caller, Hold, LocalWait, PartyTarget, Pool, Report, Target
from stilltrue.protocol.stamp import Stamp

NO_CALL = CallNumber(0)
_new = tuple.__new__  # makes a stamp twice as fast as by its name: one is made for each message


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """How much a recorder may remember, and for how long. Beyond a bound it forgets, says so, and no verdict leans on it."""

    callers_max: int = 10_000
    answered_max: int = 4_096
    doubts_max: int = 1_000
    doubt_seconds_max: float = 30.0
    colour_jump_max: int = 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What can only be seen at the instant of the cut.

    ``waits`` are further waits; ``deadlines`` tells of parties whose waits end by themselves, and when; ``ways_out`` of parties
    each of whose waits also ends when one of the parties given goes on (a task is cancelled when a sibling in its group fails).
    """

    waits: tuple[LocalWait, ...] = ()
    deadlines: Mapping[PartyName, float] = field(default_factory=dict)
    ways_out: Mapping[PartyName, tuple[PartyName, ...]] = field(default_factory=dict)


def _nothing_more(_: float) -> Observation:
    return Observation()


class Recorder:
    """One process's record. ``reactive``: it does nothing unless a message comes (docs/design.md section 4)."""

    def __init__(
        self,
        *,
        process: ProcessId,
        colour: SnapshotId = SnapshotId(0),
        reactive: bool = False,
        labels: Mapping[str, str] | None = None,
        bounds: Bounds | None = None,
        observe: Callable[[float], Observation] = _nothing_more,
    ) -> None:
        """``observe`` is asked at each cut, with its time, for what no happening could tell (what a task awaits, say)."""
        self.process = process
        self.colour = colour
        self.lost = 0
        self.happenings = 0
        self._reactive = reactive
        self._said_idle = False
        self._labels = dict(labels or {})
        self._bounds = bounds or Bounds()
        self._observe = observe
        self._next_call: Any = 1  # a CallNumber, as the next is a WaitNumber: naming the type costs a call at each step
        self._next_wait: Any = 1
        self._next_party = 1
        self._source = process.instance
        self._incarnation = process.incarnation
        self._prefix = f"{process.instance}/"
        self._made: dict[CallNumber, ClientCall] = {}
        self._doubts: dict[CallNumber, ClientCall] = {}
        self._doubts_lowest: list[CallNumber] = []  # a heap; those that are in doubt no more leave it when they come up
        self._served: dict[int, ServerCall] = {}
        self._callers: dict[Caller, CallerMemory] = {}
        self._pools: dict[str, int | None] = {}
        self._waits: dict[WaitNumber, LocalWait] = {}
        self._holds: dict[str, list[Hold]] = {}
        self._facts: dict[str, Fact] = {}

    # -- marks ---------------------------------------------------------------------------------------------------------

    def marked(self, snapshot: SnapshotId, now: float) -> Report | None:
        """An explicit marker came (rule 6): the cut it makes, or None when the process has cut for it already."""
        return self._cut(snapshot, now) if snapshot > self.colour else None

    def coloured(self, stamp: Stamp | None, now: float) -> Report | None:
        """A message is about to be handled: the cut that its colour demands first (rule 2), if any."""
        if stamp is None or stamp.colour <= self.colour:
            return None
        if stamp.colour - self.colour > self._bounds.colour_jump_max:
            self.lost += 1  # no detector counts so fast: a forged stamp must not burn the numbers to come
            return None
        return self._cut(stamp.colour, now)

    # -- calls made ----------------------------------------------------------------------------------------------------

    def sent(
        self,
        *,
        method: str,
        channel: ChannelRecord,
        now: float,
        party: PartyName | None = None,
        deadline: float | None = None,
        waiting: bool = False,
        facts: Facts = NO_FACTS,
        changes: Facts = NO_FACTS,
    ) -> tuple[ClientCall, Stamp]:
        """A call is made (rules 1, 3): its record and its stamp. ``waiting``: ``party`` is blocked on it from this step on.

        ``facts`` travel with the request; ``changes`` are made to the process's own facts in the same step (rule 7).
        """
        self.happenings += 1
        number: CallNumber = self._next_call
        self._next_call = number + 1
        made = ClientCall(number, method, channel, party, now, deadline, facts)
        self._made[number] = made
        if waiting:
            made.wait = self._next_wait
            self._next_wait += 1
        if changes:
            self._facts.update(changes)
        if self._doubts:
            self._drop_doubts(now)
        return made, self._stamp(number)

    def doubts_settled(self, numbers: Iterable[CallNumber]) -> None:
        """A server's record has settled these calls, which were in doubt (rule 8): a snapshot showed it."""
        for number in numbers:
            self._doubts.pop(number, None)

    def awaits(self, made: ClientCall, now: float, until: float | None = None) -> None:
        """The party that made the call is blocked on its outcome from now on; at ``until`` it gives up by itself."""
        self.happenings += 1
        if not made.wait and made.number in self._made:
            made.wait = self._number_wait()
            made.wait_since = now
            made.wait_until = made.deadline if until is None else min(until, made.deadline or until)

    def goes_on(self, made: ClientCall) -> None:
        """The party that made the call no longer waits for its outcome (the call itself may be outstanding still)."""
        self.happenings += 1
        made.wait = NO_WAIT

    def settled(
        self, made: ClientCall, stamp: Stamp | None, now: float, *, in_doubt: bool = False, changes: Facts = NO_FACTS
    ) -> Report | None:
        """The outcome of a call is known (rule 3), or is in doubt (rule 8). Rule 2 comes first. Settling twice is nothing."""
        report = self.coloured(stamp, now) if stamp is not None and stamp.colour > self.colour else None
        self.happenings += 1
        if self._made.get(made.number) is not made:  # settled before, or made before a fork
            return report
        del self._made[made.number]
        made.wait = NO_WAIT
        if stamp is not None:
            made.channel.answered_by(stamp.source, stamp.incarnation)
        if made.channel.hedged if stamp is not None else in_doubt:  # of a hedged call's other copies nobody can tell
            made.since = now
            self._doubts[made.number] = made
            heappush(self._doubts_lowest, made.number)
            self._drop_doubts(now)
        elif stamp is None:
            made.channel.strangers = True
        if changes:
            self._facts.update(changes)
        return report

    # -- calls served --------------------------------------------------------------------------------------------------

    def arrived(
        self,
        stamp: Stamp | None,
        *,
        method: str,
        now: float,
        pool: str = "",
        deadline: float | None = None,
        interruptible: bool = False,
    ) -> tuple[ServerCall, Report | None]:
        """A request arrived: its record, after the cut it may demand (rule 2). It is queued until :meth:`started`.

        ``interruptible``: at its deadline, or when its caller gives up, the handler itself is cancelled, so that all its
        waits end.
        """
        report = None
        caller = None
        number = NO_CALL
        if stamp is not None:
            source, incarnation, number, colour, floor = stamp
            if colour > self.colour:
                report = self.coloured(stamp, now)
            memory = self._callers.get((source, incarnation))  # type: ignore[call-overload]  # a Caller is such a pair
            if memory is None:
                memory = self._memory(Caller(source, incarnation))
            memory.saw(number, floor)
            caller = memory.caller
        self.happenings += 1
        serial = self._next_party
        self._next_party = serial + 1
        name: Any = f"{self._prefix}{method[method.rfind('/') + 1 :]}#{serial}"
        served = ServerCall(serial, name, method, caller, number, pool, now, deadline, interruptible)
        self._served[serial] = served
        return served, report

    def started(self, served: ServerCall) -> None:
        """A worker took the call from the queue: it is a party now."""
        self.happenings += 1
        served.serving = True

    def replied(self, served: ServerCall, *, facts: Facts = NO_FACTS, changes: Facts = NO_FACTS) -> Stamp:
        """The service of a call is over: the stamp of its reply (rule 1). ``facts`` travel with the reply."""
        self.happenings += 1
        if self._served.get(served.serial) is served:
            del self._served[served.serial]
            memory = self._callers.get(served.caller) if served.caller is not None else None
            if memory is not None:
                # whatever the handler took of it, the request is in transit no more: it has been answered
                memory.answered(served.number, sent=served.sent, received=served.received, facts=facts)
        if changes:
            self._facts.update(changes)
        return self._stamp(served.number)

    def took(self, served: ServerCall, changes: Facts) -> None:
        """The handler makes the facts that came with the request the process's own, in one step (rule 7)."""
        self.happenings += 1
        served.taken = True
        self._facts.update(changes)

    # -- waits, resources, pools, facts --------------------------------------------------------------------------------

    def waits(
        self,
        waiter: PartyName,
        among: Iterable[Target],
        now: float,
        *,
        needs: int = 1,
        deadline: float | None = None,
        uncoloured: bool = False,
        what: str = "",
    ) -> WaitNumber:
        """A party is blocked from now on; the number ends the wait again."""
        self.happenings += 1
        number = self._number_wait()
        self._waits[number] = LocalWait(
            waiter=waiter,
            number=number,
            among=tuple(among),
            needs=needs,
            deadline=deadline,
            since=now,
            uncoloured=uncoloured,
            what=what,
        )
        return number

    def resumes(self, number: WaitNumber) -> None:
        """The wait with this number is over. Ending it twice is nothing."""
        self.happenings += 1
        self._waits.pop(number, None)

    def holds(self, party: PartyName, resource: str, capacity: int = 1) -> None:
        """A party holds one (more) of the ``capacity`` shares of a resource."""
        self.happenings += 1
        self._holds.setdefault(resource, []).append(Hold(party=party, resource=resource, capacity=capacity))

    def releases(self, party: PartyName, resource: str) -> bool:
        """A party gives back one share; False when it held none (then somebody else's share was meant: nobody can tell)."""
        self.happenings += 1
        held = self._holds.get(resource, [])
        for index, hold in enumerate(held):
            if hold.party == party:
                del held[index]
                if not held:
                    del self._holds[resource]
                return True
        return False

    def pool_opened(self, name: str, size: int | None) -> None:
        """The process has a pool of ``size`` workers (None: unknown)."""
        self._pools[name] = size

    def fact(self, changes: Facts) -> None:
        """Facts of the application change."""
        self.happenings += 1
        self._facts.update(changes)

    def idle(self) -> None:
        """The application owes no message of its own accord."""
        self.happenings += 1
        self._said_idle = True

    def active(self) -> None:
        """The application may do something of its own accord."""
        self.happenings += 1
        self._said_idle = False

    # -- questions -----------------------------------------------------------------------------------------------------

    def oldest_wait(self, after: WaitNumber) -> tuple[WaitNumber, float] | None:
        """The first wait numbered above ``after`` that still lasts, and since when; None when there is none."""
        found: tuple[WaitNumber, float] | None = None
        for made in self._made.values():
            if made.wait > after and (found is None or made.wait < found[0]):
                found = (made.wait, made.wait_since)
        for number, wait in self._waits.items():
            if number > after:
                if found is None or number < found[0]:
                    found = (number, wait.since or 0.0)
                break
        return found

    def look(self, request: LookRequest, now: float) -> Look:
        """What is seen of each suspect now (rule 10): are all its waits still in force, and until when at the latest?"""
        waits: dict[PartyName, dict[WaitNumber, LocalWait]] = {}
        for wait in self._all_waits(now):
            waits.setdefault(wait.waiter, {})[wait.number] = wait
        return Look(
            snapshot=request.snapshot,
            parties=tuple(_look_at(suspect, waits.get(suspect.party, {})) for suspect in request.suspects),
            happenings=self.happenings,
        )

    # -- the cut -------------------------------------------------------------------------------------------------------

    def _cut(self, snapshot: SnapshotId, now: float) -> Report:
        """Rule 2: record the local state as it is before the message that made the process cut."""
        after, self.colour = self.colour, snapshot
        self._drop_doubts(now)
        waits = self._all_waits(now)
        served = tuple(self._served.values())
        queued: dict[str, int] = {}
        for call in served:
            if not call.serving:
                queued[call.pool] = queued.get(call.pool, 0) + 1
        return Report(
            process=self.process,
            snapshot=snapshot,
            after=after,
            cut_at=now,
            next_number=self._next_call,
            activity=self._activity(waits),
            made=tuple(made.freeze(doubtful=False) for made in self._made.values())
            + tuple(made.freeze(doubtful=True) for made in self._doubts.values()),
            served=tuple(call.freeze() for call in served),
            seen=tuple(memory.seen() for memory in self._callers.values()),
            pools=tuple(Pool(name=n, size=size, queued=queued.get(n, 0)) for n, size in self._pools.items()),
            waits=waits,
            holds=tuple(hold for held in self._holds.values() for hold in held),
            facts=dict(self._facts),
            labels=self._labels,
            lost=self.lost,
            happenings=self.happenings,
        )

    def _all_waits(self, now: float) -> tuple[LocalWait, ...]:
        """Every wait at this instant, with the deadline by which its waiter is freed whatever happens."""
        seen = self._observe(now)
        waits = [made.local_wait() for made in self._made.values() if made.wait and made.party is not None]
        waits += self._waits.values()
        waits += seen.waits
        ends = {c.party: c.deadline for c in self._served.values() if c.interruptible and c.deadline is not None}
        for party, deadline in seen.deadlines.items():
            ends[party] = min(deadline, ends.get(party, deadline))
        return tuple(
            _with_ways_out(_ending(wait, ends.get(wait.waiter)), seen.ways_out.get(wait.waiter, ()), now) for wait in waits
        )

    def _activity(self, waits: tuple[LocalWait, ...]) -> Activity:
        if not (self._reactive or self._said_idle):
            return Activity.ACTIVE
        if not (self._made or self._served or waits):
            return Activity.IDLE
        blocked = is_blocked(self._made.values(), self._served.values(), {wait.waiter for wait in waits})
        return Activity.BLOCKED if blocked else Activity.ACTIVE

    def _memory(self, caller: Caller) -> CallerMemory:
        for other in [c for c in self._callers if c.process == caller.process]:
            if other.incarnation < caller.incarnation:  # that run of the caller is over, and all its calls with it
                del self._callers[other]
        if len(self._callers) >= self._bounds.callers_max:
            del self._callers[next(iter(self._callers))]
            self.lost += 1
        memory = self._callers[caller] = CallerMemory(caller, answered_max=self._bounds.answered_max)
        return memory

    def _drop_doubts(self, now: float) -> None:
        """Rule 8: a doubt lasts until its bound passes; the oldest go first when there are too many."""
        while self._doubts:
            oldest = next(iter(self._doubts.values()))
            if len(self._doubts) <= self._bounds.doubts_max and now - oldest.since < self._bounds.doubt_seconds_max:
                return
            del self._doubts[oldest.number]

    def _number_wait(self) -> WaitNumber:
        number: WaitNumber = self._next_wait
        self._next_wait = number + 1
        return number

    def _stamp(self, number: CallNumber) -> Stamp:
        floor = next(iter(self._made), self._next_call)
        lowest = self._doubts_lowest
        while lowest and lowest[0] not in self._doubts:
            heappop(lowest)
        if lowest and lowest[0] < floor:
            floor = lowest[0]
        stamp: Stamp = _new(Stamp, (self._source, self._incarnation, number, self.colour, floor))
        return stamp


def _look_at(suspect: Suspect, waits: Mapping[WaitNumber, LocalWait]) -> PartyLook:
    """A suspect beside the waits that it has now; a wait's targets may have become more (ways out), never others."""
    if any(number not in waits for number in suspect.waits):
        return PartyLook(party=suspect.party, unchanged=False)
    ends = (waits[number].deadline for number in suspect.waits)
    return PartyLook(party=suspect.party, unchanged=True, deadline=min((end for end in ends if end is not None), default=None))


def _ending(wait: LocalWait, deadline: float | None) -> LocalWait:
    if deadline is None or (wait.deadline is not None and wait.deadline <= deadline):
        return wait
    return replace(wait, deadline=deadline)


def _with_ways_out(wait: LocalWait, others: tuple[PartyName, ...], now: float) -> LocalWait:
    """``wait``, which also ends when one of ``others`` goes on; what cannot be said so counts as ending by itself."""
    if not others:
        return wait
    if wait.needs > 1:
        return _ending(wait, now)
    return replace(wait, among=(*wait.among, *(PartyTarget(party=other) for other in others if other != wait.waiter)))
