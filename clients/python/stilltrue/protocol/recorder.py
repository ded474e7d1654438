"""The recorder: one process's record of its calls and waits, and its cuts. The same class runs live and simulated.

The rules (docs/design.md section 3; elsewhere, the code calls them "protocol rule 1" and so on):

1. Colour. Every message carries its sender's stamp: source, call number, colour. A reply may omit it where it is redundant: it
   is not an error, its colour is the request's, and the request shows that its sender knows who answers.
2. Cut once, in time. On a marker for snapshot n, or a message of colour n, a process of a lower colour c cuts first, then
   handles the message; the cut serves every snapshot in (c, n].
3. The sender remembers. A call is outstanding at its caller until its outcome is known there; the server remembers the numbers
   it has seen, down to the caller's floor.
4. Channels by difference. The report lists the calls outstanding, served, queued and answered, and counts stream items; the
   detector subtracts.
5. No orphans, checked. The report gives ``next_number``; no server may have seen that number or any above it.
6. An explicit marker wakes the quiet processes.
7. Atomic events. Facts change in the same step as the message they belong to; what ends a wait ends it in its own step.
8. A failed call is in doubt when its caller cannot tell whether it was received, until a stated bound passes.
9. Stamps are ours alone. A message without a valid stamp is handled like any other, but causes no cut, and its caller is
   unknown. A colour that no detector can have issued yet is ignored (:mod:`stilltrue.protocol.colour_jumps`).
10. Look again before accusing. On request the recorder reports for each suspect whether it is still in the very same waits, and
    the number of recorded events: if it equals the count at the cut, nothing has happened since.

There is one method per event. It returns its effects: numbers, stamps, and a :class:`~stilltrue.protocol.report.Report` if the
event made the process cut. Nothing here does I/O, reads a clock, or knows threads: callers pass the time and hold a lock around
each call. Calls go through the states of :mod:`stilltrue.protocol.books.call_state`, which only the recorder changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from stilltrue.model import (
    NO_FACTS,
    UNKNOWN_FACT,
    Activity,
    CallNumber,
    Fact,
    Facts,
    PartyName,
    ProcessId,
    SnapshotId,
    WaitNumber,
)
from stilltrue.protocol.activity import Activities
from stilltrue.protocol.books.answered_calls import Callers
from stilltrue.protocol.books.call_state import (
    AWAIT,
    END,
    GO_ON,
    HANG_UP,
    HOLD_BACK,
    REOPEN,
    SETTLE,
    START,
    TAKE,
    ClientState,
)
from stilltrue.protocol.books.calls_in_doubt import Doubts
from stilltrue.protocol.books.ledger import (
    NO_REPLY,
    NO_WAIT,
    ChannelRecord,
    ClientCall,
    OpenWait,
    ServedContext,
    ServerCall,
)
from stilltrue.protocol.colour_jumps import ColourJumps
from stilltrue.protocol.local_state import LocalState, PoolSize, local_state
from stilltrue.protocol.observation import Observation, observe_nothing
from stilltrue.protocol.report import Caller, Hold, Report, Target
from stilltrue.protocol.requests.look import Look, LookRequest
from stilltrue.protocol.stamp import KNOWN_LENGTH_MAX, NUMBER_BITS, Stamp, mark_of, sender_text
from stilltrue.protocol.step import Step
from stilltrue.protocol.story import EventLog

NO_CALL = CallNumber(0)
METHODS_MAX = 1_024
"""The maximum number of methods whose party name prefix is cached."""
AWAITED = ClientState.AWAITED  # looking up an enum member is slow
NOBODY = PartyName("")
"""Stands for the process as a whole."""
_new = tuple.__new__  # twice as fast as calling Stamp(), and each message needs a stamp


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Limits on a recorder's memory. Reports say when something was dropped, and no verdict relies on it."""

    callers_max: int = 10_000
    answered_max: int = 4_096
    doubts_max: int = 1_000
    doubt_seconds_max: float = 30.0
    colour_jump_max: int = 10**9
    """How far messages may raise the colour before the first marker, and the largest jump that can be saved up after it."""
    colours_per_second: int = 1000
    """How fast messages may raise the colour after the first marker, forged stamps or not: faster than any detector counts."""
    story_max: int = 64
    """The number of events that the log keeps (0: no log). Each entry keeps its call in memory, which costs cache misses."""


class Recorder:
    """One process's record. ``reactive``: the process acts only on messages (docs/design.md section 4)."""

    def __init__(
        self,
        *,
        process: ProcessId,
        reactive: bool = False,
        labels: Mapping[str, str] | None = None,
        bounds: Bounds | None = None,
        observe: Callable[[float], Observation] = observe_nothing,
    ) -> None:
        """``observe`` is called at each cut, with its time, for what no event reveals (what a task awaits, for example)."""
        self.process = process
        self.colour = SnapshotId(0)
        self.happenings = 0
        """The number of recorded events; a cut is not counted (rule 10)."""
        self.refused = 0
        """The number of stamps refused because no detector can have issued their colour yet."""
        self._inherited: set[ClientCall | ServerCall] = set()
        """Calls made or served before a renaming that are not over."""
        self._labels = dict(labels or {})
        self._bounds = bounds = bounds or Bounds()
        self._jumps = ColourJumps(bounds.colour_jump_max, bounds.colours_per_second)
        self._observe = observe
        self._next_call: Any = 1  # a CallNumber; Any, since CallNumber(...) would cost a function call each time
        self._next_wait: Any = 1  # a WaitNumber
        self._next_party = 1
        self._source = process.instance
        self._incarnation = process.incarnation
        self._prefix = f"{process.instance}/"
        self._mark = mark_of(process.instance, process.incarnation)
        self.sender = sender_text(process.instance, process.incarnation)
        """The beginning of its stamps' text."""
        self._party_prefixes: dict[str, str] = {}
        """By method: the prefix of the names of the parties that serve it."""
        self.calls_made: dict[CallNumber, ClientCall] = {}
        self._lowest: Any = 1
        """No call with a lower number is outstanding."""
        self._in_steps: dict[CallNumber, Step] = {}
        self._doubts = Doubts(doubts_max=bounds.doubts_max, seconds_max=bounds.doubt_seconds_max)
        self._in_doubt = self._doubts.calls
        self.calls_served: dict[int, ServerCall] = {}
        self._callers = Callers(callers_max=bounds.callers_max, answered_max=bounds.answered_max)
        self._memory_of = self._callers.get
        self._memory_by_text = self._callers.by_text.get
        self._pools: dict[str, PoolSize] = {}
        self.open_waits: dict[WaitNumber, OpenWait] = {}
        self._holds: dict[str, list[Hold]] = {}
        self._facts: dict[str, Fact] = {}
        self._activities = Activities(reactive=reactive)
        self._log = EventLog(bounds.story_max)
        self._log_event = self._log.append if bounds.story_max else None

    def observe_with(self, observe: Callable[[float], Observation]) -> None:
        """Replace what is called at each cut, and at each look, for what no event reveals."""
        self._observe = observe

    # -- markers -------------------------------------------------------------------------------------------------------

    def marked(self, snapshot: SnapshotId, now: float) -> Report | None:
        """An explicit marker came (rule 6). Returns the report of the cut, or None if the process has already cut for it."""
        if snapshot <= self.colour:
            return None
        self._jumps.follows(snapshot - self.colour, now)
        return self._cut(snapshot, now)

    def coloured(self, stamp: Stamp | None, now: float) -> Report | None:
        """A message is about to be handled. Returns the report of the cut that its colour requires first (rule 2), if any."""
        if stamp is None or stamp.colour <= self.colour:
            return None
        if not self._jumps.grants(stamp.colour - self.colour, now):
            self.refused += 1  # no detector counts so fast: a forged stamp must not use up the snapshot numbers
            return None
        return self._cut(stamp.colour, now)

    # -- calls made ----------------------------------------------------------------------------------------------------

    def sent(
        self,
        method: str,
        channel: ChannelRecord,
        now: float,
        party: PartyName | None = None,
        deadline: float | None = None,
        waiting: bool = False,
        step: Step | None = None,
    ) -> tuple[ClientCall, Stamp]:
        """A call is made (rules 1, 3). Returns its record and its stamp. ``waiting``: ``party`` is blocked on it at once.

        The call is the message of ``step`` (rule 7), if given: the step's facts change and travel with it.
        Raises :class:`~stilltrue.protocol.step.StepError` if the step has already sent a message.
        """
        facts = NO_FACTS if step is None else self._spend(step)
        number = self._next_call
        self._next_call = number + 1
        calls = self.calls_made
        made = calls[number] = ClientCall(number, method, channel, party, now, deadline, facts)
        if step is not None:
            step.message = made
            self._in_steps[number] = step
        if waiting:
            made.state = AWAITED
            made.wait = self._next_wait
            self._next_wait += 1
        self.happenings += 1
        colour = self.colour
        if self._log_event is not None:
            self._log_event((self.happenings, colour, "sent", made))
        floor = self._lowest
        if floor not in calls:
            while floor not in calls:  # faster than next(iter(calls)), which skips every deleted entry
                floor += 1
            self._lowest = floor
        if self._in_doubt:
            self._doubts.expire(now)
            floor = self._doubts.floor(floor)
        stamp: Stamp = _new(Stamp, (self._source, self._incarnation, number, colour, floor, channel.known))
        return made, stamp

    def doubts_settled(self, numbers: Iterable[CallNumber]) -> None:
        """A snapshot showed that servers have answered these calls, which were in doubt (rule 8)."""
        self._doubts.settle(numbers)

    def awaits(self, made: ClientCall, now: float, until: float | None = None) -> None:
        """The party that made the call is blocked on its outcome from ``now`` on, at most until ``until``."""
        made.state = AWAIT[made.state]
        if not made.wait and made.state is AWAITED:
            made.wait = self._next_wait
            self._next_wait += 1
            made.wait_since = now
            made.wait_until = made.deadline if until is None else min(until, made.deadline or until)
            self.happenings += 1
            if self._log_event is not None:
                self._log_event((self.happenings, self.colour, "awaits", made))

    def goes_on(self, made: ClientCall) -> None:
        """The party that made the call no longer waits for its outcome; the call may still be outstanding."""
        if made.wait:
            made.state = GO_ON[made.state]
            made.wait = NO_WAIT
            self._happened("goes on without", made)

    def settled(self, made: ClientCall, stamp: Stamp | None, now: float, in_doubt: bool = False) -> Report | None:
        """The outcome of a call is known (rule 3), or is in doubt (rule 8). Rule 2 is applied first. Idempotent.

        If the call is the message of a step that is still open, the outcome takes effect when the step closes (rule 7).
        """
        report = None
        if stamp is not None and stamp.colour > self.colour:
            report = self.coloured(stamp, now)
        if self.calls_made.get(made.number) is not made:  # settled before, or made before a fork or a renaming
            self._inherited.discard(made)
            return report
        step = self._in_steps.get(made.number) if self._in_steps else None
        made.wait = NO_WAIT
        if step is not None:
            made.state = HOLD_BACK[made.state]
            step.outcome = (stamp, in_doubt)
            self._happened("outcome held back:", made)
            return report
        del self.calls_made[made.number]
        channel = made.channel
        if stamp is not None:
            channel.answered_by(stamp.source, stamp.incarnation)
            in_doubt = channel.hedged  # of the other copies nothing is known
        if in_doubt:
            self._doubts.add(made, now)
        else:
            made.state = SETTLE[made.state]
            if stamp is None and not channel.known:  # otherwise it may come from a known server
                channel.strangers = True
        self.happenings += 1
        if self._log_event is not None:
            self._log_event((self.happenings, self.colour, "in doubt" if in_doubt else "settled", made))
        return report

    def facts_lost(self, made: ClientCall) -> None:
        """A request failed (rule 7): the facts that it carried become unknown here until set again, once its step is closed."""
        step = self._in_steps.get(made.number)
        if step is not None and step.message is made:
            step.lost = dict.fromkeys(made.facts, UNKNOWN_FACT)
        elif self.calls_made.get(made.number) is made:
            self._facts.update(dict.fromkeys(made.facts, UNKNOWN_FACT))

    # -- steps of the application --------------------------------------------------------------------------------------

    def closed(self, step: Step, now: float) -> None:
        """A step of the application has closed (rule 7): its deferred changes take effect now, all at once."""
        served, message = step.served, step.message
        if message is not None:
            self._in_steps.pop(message.number, None)
        if step.replying and served is not None:
            # a success also takes the request's facts
            carried, changes = served.reply  # of an earlier step with the reply
            served.reply = ({**carried, **({} if step.spent else step.carried)}, {**changes, **step.changes})
        else:
            if step.taking and served is not None:
                self._take(served)
            if step.carried and not step.spent:  # an error came first, or no call was recorded: what has left is unknown
                step.changes = dict.fromkeys(step.changes, UNKNOWN_FACT)
            if step.changes:
                self.fact(step.changes)
        if step.lost:
            self._facts.update({name: unknown for name, unknown in step.lost.items() if name not in step.changes})
        if message is not None and step.outcome is not None:
            stamp, in_doubt = step.outcome
            handled = stamp and stamp._replace(colour=self.colour)  # its colour was handled when it came
            self.settled(message, handled, now, in_doubt=in_doubt)

    # -- calls served --------------------------------------------------------------------------------------------------

    def arrived(
        self,
        stamp: Stamp | None,
        method: str,
        now: float,
        interruptible: bool = False,
        pool: str = "",
        deadline: float | None = None,
        label: str = "",
    ) -> tuple[ServerCall, Report | None]:
        """A request arrived. Returns its record, and the report of the cut that it requires first (rule 2), if any.

        The call is queued until :meth:`started`. The name of the party that serves it begins with ``label``, by default the
        last part of ``method``. ``interruptible``: the handler is cancelled at its deadline or when its caller cancels, so that
        all its waits end.
        """
        report = None
        caller = None
        number = NO_CALL
        if stamp is not None:
            source, incarnation, number, colour, floor, known = stamp
            if colour > self.colour:
                report = self.coloured(stamp, now)
            memory = self._memory_of((source, incarnation))  # type: ignore[call-overload]  # a Caller is such a pair
            if memory is None:
                memory = self._callers.begin(Caller(source, incarnation))
            memory.saw(number, floor)
            caller = memory.caller
        serial = self._next_party
        self._next_party = serial + 1
        prefix = self._party_prefixes.get(method) if not label else None
        name: Any = f"{self._party_prefix(label, method) if prefix is None else prefix}{serial}"
        served = ServerCall(serial, name, method, caller, number, pool, now, deadline, interruptible)
        if stamp is not None and known and self._mark in known:
            served.unstamped_colour = colour
        self.calls_served[serial] = served
        self.happenings += 1
        if self._log_event is not None:
            self._log_event((self.happenings, self.colour, "arrived", served))
        return served, report

    def arrived_again(self, text: str, method: str, now: float, interruptible: bool = False) -> ServerCall | None:
        """A request with the stamp ``text`` arrived. A faster :meth:`arrived`, which makes the same record of most requests.

        Returns None and changes nothing if the request requires a cut, if its caller or its method is new here, or if its
        caller does not know who answers it.
        """
        try:
            sender, call, newest, lowest, known = text.rsplit(";", 4)
            number: Any = int(call)  # a CallNumber, and so on; Any as for _next_call
            colour: Any = int(newest)
            floor: Any = number if lowest == call else int(lowest)
        except ValueError:
            return None
        memory = self._memory_by_text(sender)
        prefix = self._party_prefixes.get(method)
        if memory is None or prefix is None or colour > self.colour:
            return None
        if (number | colour | floor) >> NUMBER_BITS or known[:1] != "~" or len(known) > KNOWN_LENGTH_MAX:
            return None  # for decode to judge
        memory.saw(number, floor)
        serial = self._next_party
        self._next_party = serial + 1
        name: Any = f"{prefix}{serial}"
        served = ServerCall(serial, name, method, memory.caller, number, "", now, None, interruptible)
        if self._mark in known:
            served.unstamped_colour = colour
        self.calls_served[serial] = served
        self.happenings += 1
        if self._log_event is not None:
            self._log_event((self.happenings, self.colour, "arrived", served))
        return served

    def queued(self, served: ServerCall, pool: str, deadline: float | None = None, deadline_known: bool = False) -> None:
        """An arrived call waits behind ``pool``. An earlier ``deadline`` replaces its own; ``deadline_known``: it has no other.

        Needs no lock: the deadline is set first, so a cut in between finds a call that waits for no worker yet.
        """
        if deadline is not None and (served.deadline is None or deadline < served.deadline):
            served.deadline = deadline
        served.deadline_known = deadline_known
        served.pool = pool

    def started(
        self,
        served: ServerCall,
        deadline: float | None = None,
        interruptible: bool | None = None,
        context: ServedContext | None = None,
    ) -> None:
        """A worker took the call from the queue: it is now a party. Arguments other than None replace those of the arrival.

        ``context`` is asked at each cut whether the caller is gone; without one, the shell must call :meth:`hung_up`.
        """
        served.state = START[served.state]
        served.context = context
        if deadline is not None:
            served.deadline = deadline
        if interruptible is not None:
            served.interruptible = interruptible
        self.happenings += 1
        if self._log_event is not None:
            self._log_event((self.happenings, self.colour, "started", served))

    def poll_callers(self) -> None:
        """Record which callers are gone, for calls whose shells can only be asked for that."""
        for served in tuple(self.calls_served.values()):
            if served.context is not None and served.context.has_ended():
                served.context = None
                if served.unanswered:
                    self.replied(served, failed=True)
                else:
                    self.hung_up(served)

    def hung_up(self, served: ServerCall) -> None:
        """The caller is gone (cancelled, timed out, disconnected); the handler may still run."""
        served.state = HANG_UP[served.state]
        self._happened("the caller hung up on", served)

    def left_unanswered(self, served: ServerCall, context: ServedContext) -> bool:
        """No status was sent when the handler of a call had ended (:meth:`replied`): its caller goes on waiting.

        ``context`` is asked whether the call is over. Returns False, and changes nothing, if it is, or if it is of another run.
        """
        memory = None if served.caller is None else self._memory_of(served.caller)
        if not served.party.startswith(self._prefix) or not (memory is None or memory.reopened(served.number)):
            return False
        served.state = REOPEN[served.state]
        served.unanswered, served.interruptible, served.context = True, False, context
        self.calls_served[served.serial] = served
        self._happened("no status for", served)
        return True

    def reply_begun(self, served: ServerCall) -> Stamp:
        """The head of a reply is being sent before its body is complete. Returns its stamp; the call is still being served."""
        return self._stamp(served.number)

    def replied(self, served: ServerCall, failed: bool = False, stamped: bool = False) -> Stamp | None:
        """A call has been served. Returns the stamp of its reply if it needs one, or if ``stamped`` (rule 1). Idempotent.

        What a step deferred to the reply takes effect now (rule 7). ``failed``: the call ended with an error or without
        a reply; that is then dropped, and facts of the request that were not taken go back with the error.
        """
        if self.calls_served.get(served.serial) is served:
            del self.calls_served[served.serial]
            served.context = None
            served.state = END[served.state]
            facts, changes = NO_REPLY if failed else served.reply
            caller = served.caller
            if caller is not None and (memory := self._memory_of(caller)) is not None:
                # a success counts as taken: the request is no longer in transit, whether or not the handler took its facts
                memory.answered(served.number, served.sent, served.received, facts, served.taken or not failed)
            if changes:
                self._facts.update(changes)
            self.happenings += 1
            if self._log_event is not None:
                self._log_event((self.happenings, self.colour, "failed" if failed else "replied", served))
        else:
            served.context = None
            self._inherited.discard(served)
        if served.unstamped_colour == self.colour and not (failed or stamped):
            return None
        return self._stamp(served.number)

    # -- stream items (rule 4) -----------------------------------------------------------------------------------------

    def item_sent(self, call: ClientCall | ServerCall) -> None:
        """An item of the call's stream was sent, or its end if the receiver is known to wait for it."""
        call.sent += 1
        self.happenings += 1
        if self._log_event is not None:
            self._log_event((self.happenings, self.colour, "sent an item of", call))

    def item_received(self, call: ClientCall | ServerCall, wait: WaitNumber | None = None) -> None:
        """An item of the call's stream was received; the wait for it ends in the same step."""
        call.received += 1
        if wait is not None:
            self.open_waits.pop(wait, None)
        self.happenings += 1
        if self._log_event is not None:
            self._log_event((self.happenings, self.colour, "an item received of", call))

    # -- waits, resources, pools, facts --------------------------------------------------------------------------------

    def waits(
        self,
        waiter: PartyName,
        among: Iterable[Target],
        now: float,
        needs: int = 1,
        timeout: float | None = None,
        deadline: float | None = None,
        uncoloured: bool = False,
        what: str = "",
    ) -> WaitNumber:
        """A party is blocked from ``now`` on, at most for ``timeout`` seconds and until ``deadline``.

        Returns the number to pass to :meth:`resumes`.
        """
        if timeout is not None:
            deadline = now + timeout if deadline is None else min(deadline, now + timeout)
        number = self._number_wait()
        self.open_waits[number] = OpenWait(waiter, number, tuple(among), needs, deadline, now, uncoloured, what)
        self.happenings += 1
        if self._log_event is not None:
            self._log_event((self.happenings, self.colour, "waits", waiter))
        return number

    def resumes(self, number: WaitNumber) -> None:
        """The wait with this number is over. Idempotent."""
        wait = self.open_waits.pop(number, None)
        if wait is not None:
            self._happened("waits no longer", wait.waiter)

    def holds(self, party: PartyName, resource: str, capacity: int = 1, wait: WaitNumber | None = None) -> None:
        """A party takes one of the ``capacity`` shares of a resource; its wait for the share ends in the same step."""
        if wait is not None:
            self.open_waits.pop(wait, None)
        self._holds.setdefault(resource, []).append(Hold(party=party, resource=resource, capacity=capacity))
        self._happened("takes a share", party)

    def releases(self, party: PartyName, resource: str) -> bool:
        """A party releases one share. Returns False if it held none: then it meant the share of some other, unknown party."""
        held = self._holds.get(resource, [])
        for index, hold in enumerate(held):
            if hold.party == party:
                del held[index]
                if not held:
                    del self._holds[resource]
                self._happened("gives a share back", party)
                return True
        return False

    def pool_opened(self, name: str, size: PoolSize) -> None:
        """The process has a pool of ``size`` workers (None: unknown; 0: it is gone); a callable is asked for it at each cut."""
        self._pools[name] = size

    def fact(self, changes: Facts) -> None:
        """Facts of the application change."""
        self._facts.update(changes)
        for step in self._in_steps.values():
            step.lost = {name: unknown for name, unknown in step.lost.items() if name not in changes}
        self._happened("facts change")

    def idle(self, party: PartyName = NOBODY) -> None:
        """Neither ``party`` nor anything in the process that is not a party acts spontaneously: see :class:`Activities`."""
        self._activities.idle(party)
        self._happened("idle:", party)

    def active(self, party: PartyName = NOBODY) -> None:
        """``party`` may act spontaneously from now on."""
        self._activities.active(party)
        self._happened("active:", party)

    def busy(self) -> None:
        """The process enters a block of work in which it may act spontaneously."""
        self._activities.busy()
        self._happened("busy")

    def done(self) -> None:
        """The process leaves a block of work."""
        self._activities.done()
        self._happened("done")

    def renamed(self, process: ProcessId) -> None:
        """The process gets another name, because its own was taken. Open calls are not reported under the new name.

        Facts, pools and the memory of callers are kept; facts that open calls carry are unknown until set again. The process
        counts as active until the earlier calls are over.
        """
        self.process = process
        self._source, self._incarnation, self._prefix = process.instance, process.incarnation, f"{process.instance}/"
        self._mark = mark_of(process.instance, process.incarnation)
        self.sender = sender_text(process.instance, process.incarnation)
        self._party_prefixes.clear()
        self._inherited.update(self.calls_made.values(), self.calls_served.values())
        for made in (*self.calls_made.values(), *self._in_doubt.values()):
            self._facts.update(dict.fromkeys(made.facts, UNKNOWN_FACT))
        self.calls_made.clear()
        self.calls_served.clear()
        self._in_steps.clear()
        self.open_waits.clear()
        self._holds.clear()
        self._doubts = Doubts(doubts_max=self._bounds.doubts_max, seconds_max=self._bounds.doubt_seconds_max)
        self._in_doubt = self._doubts.calls
        self._activities.rename()
        self._happened("renamed")

    # -- questions -----------------------------------------------------------------------------------------------------

    def oldest_wait(self, after: WaitNumber) -> tuple[WaitNumber, float] | None:
        """The lowest-numbered open wait above ``after``, and when it began; None if there is none."""
        found: tuple[WaitNumber, float] | None = None
        for made in self.calls_made.values():
            if made.wait > after and (found is None or made.wait < found[0]):
                found = (made.wait, made.wait_since)
        for number, wait in self.open_waits.items():
            if number > after:
                if found is None or number < found[0]:
                    found = (number, wait.since or 0.0)
                break
        return found

    def look(self, request: LookRequest, now: float) -> Look:
        """Look at each suspect now (rule 10): whether all its waits are still in force, and when the first ends by itself."""
        self.poll_callers()
        parties = self._local_state(now).look_at(request.suspects)
        return Look(snapshot=request.snapshot, parties=parties, happenings=self.happenings)

    def story(self, of: CallNumber | PartyName) -> list[str]:
        """The logged events of the call with this number, or of a party: see :class:`EventLog`."""
        return self._log.story(of)

    # -- the cut -------------------------------------------------------------------------------------------------------

    def _cut(self, snapshot: SnapshotId, now: float) -> Report:
        """Rule 2: record the local state as it is before the message that triggered the cut."""
        after, self.colour = self.colour, snapshot
        self._doubts.expire(now)
        self.poll_callers()
        if self._log_event is not None:
            self._log_event((self.happenings, snapshot, "cut", None))
        state = self._local_state(now)
        return Report(
            process=self.process,
            snapshot=snapshot,
            after=after,
            cut_at=now,
            next_number=self._next_call,
            activity=Activity.ACTIVE if self._inherited or not self._activities.all_idle else state.activity(),
            made=tuple(made.freeze() for made in (*state.made, *self._in_doubt.values())),
            served=state.served_calls(),
            seen=self._callers.seen(),
            pools=tuple(state.pools(self._pools)),
            waits=state.waits,
            holds=state.holds,
            facts=dict(self._facts),
            labels=self._labels,
            lost=self.lost,
            happenings=self.happenings,
        )

    def _local_state(self, now: float) -> LocalState:
        return local_state(
            self.calls_made.values(),
            self.calls_served.values(),
            self.open_waits.values(),
            self._holds,
            observe=self._observe,
            now=now,
        )

    @property
    def calls(self) -> int:
        """The number of calls made and served since the process started."""
        return int(self._next_call) + self._next_party - 2

    @property
    def lost(self) -> int:
        """The number of entries dropped to stay within the bounds; while it is not 0, calls may be missing from reports."""
        return self._callers.lost + self._doubts.dropped

    def _happened(self, what: str, subject: object = None) -> None:
        self.happenings += 1
        if self._log_event is not None:
            self._log_event((self.happenings, self.colour, what, subject))

    def _spend(self, step: Step) -> Facts:
        """Apply the step's changes as its message is sent, and return the facts that the message carries."""
        carried, changes = step.spend()
        if step.taking and step.served is not None:
            self._take(step.served)
        self._facts.update(changes)
        return carried

    def _party_prefix(self, label: str, method: str) -> str:
        """The prefix of the name of a party that serves ``method``; cached unless there is a ``label``."""
        if label:
            return f"{self._prefix}{label}#"
        if len(self._party_prefixes) >= METHODS_MAX:
            self._party_prefixes.clear()
        prefix = self._party_prefixes[method] = f"{self._prefix}{method.rpartition('/')[2]}#"
        return prefix

    def _take(self, served: ServerCall) -> None:
        served.state = TAKE[served.state]
        served.taken = True

    def _number_wait(self) -> WaitNumber:
        number: WaitNumber = self._next_wait
        self._next_wait = number + 1
        return number

    def _stamp(self, number: CallNumber) -> Stamp:
        floor, made = self._lowest, self.calls_made
        if floor not in made:
            above = self._next_call
            while floor < above and floor not in made:  # as in sent()
                floor += 1
            self._lowest = floor
        if self._in_doubt:
            floor = self._doubts.floor(floor)
        stamp: Stamp = _new(Stamp, (self._source, self._incarnation, number, self.colour, floor, ""))
        return stamp
