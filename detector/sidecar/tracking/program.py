"""The program as its sidecar sees it: the calls to and from the program show which party waits for which.

No I/O: the relay reports events in order and gets the stamps to add. The rules of waiting, argued in docs/sidecar.md:

1. A handler that makes a call waits for it, from when the request is complete until the reply begins.
2. With several outstanding calls it waits for one of them (or for all, if so declared); once one has ended, the others no
   longer count.
3. Every wait is uncoloured: no verdict relies on it until a second look has found the very same wait.
4. Evidence against rule 1 disqualifies a method for good: its caller replied while the call was outstanding, made it after
   replying, or cancelled it before any deadline.
5. Calls on a connection that the program is closing may be ended by it at any time, which frees their callers: while there are
   any, no wait here is certain.
6. What may be a wait, but is not known to be one, is reported as a possible wait (:mod:`.possible_waits`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from typing import Any

from detector.core.counting import counted
from detector.sidecar.attribution import Attribution, CallerAttribution
from detector.sidecar.tracking.calls import InboundCall, OutboundCall
from detector.sidecar.tracking.pool import GRACE_SECONDS, Later, ProgramPool
from detector.sidecar.tracking.possible_waits import Possible, ProgramState, possible_waits
from stilltrue.model import PartyName
from stilltrue.protocol.books.ledger import ChannelRecord
from stilltrue.protocol.observation import Observation
from stilltrue.protocol.report import CallTarget
from stilltrue.protocol.requests.look import Look, LookRequest
from stilltrue.protocol.stamp import Stamp
from stilltrue.runtime.locked_recorder import LockedRecorder, Pair

DISTRUSTED = "distrusted"
SETTLING_SECONDS = 0.1
"""How long a wait must have lasted at the second look: its caller may be about to make another call, or has made one that has
not reached the sidecar yet."""
UNKNOWN_SECONDS = 1.0
"""How long a call of an unknown caller must have lasted to be reported: a shorter one holds up nobody."""
STANDING_SECONDS = 5.0
"""How long a call must not have moved to be unexplained; the same as in ``stilltrue.runtime.look.standing.unexplained``."""
METHODS_MAX = 1_000
METHODS_NAMED_MAX = 3
"""The maximum number of methods that a blind spot names."""


class Program:
    """Records what one program does."""

    def __init__(
        self,
        live: LockedRecorder,
        *,
        later: Later,
        warn: Callable[[str], None],
        workers: int | None = None,
        never_awaited: Collection[str] = (),
        needs_all: bool = False,
        call_seconds_max: float | None = None,
    ) -> None:
        """``workers``: the number of calls served at once (None: unknown). ``never_awaited``: methods that are not awaited.

        ``call_seconds_max``: the program ends each call after this time (None: it does not).
        ``needs_all``: a handler with several outstanding calls waits for all of them. ``warn`` is called when an assumption
        turns out to be wrong.
        """
        self.live = live
        self._later = later
        self._warn = warn
        self._needs_all = needs_all
        self._call_seconds_max = call_seconds_max
        self._attribution = CallerAttribution()
        self._declared = frozenset(never_awaited)
        self._distrusted = set(never_awaited)
        self.pool = ProgramPool(live, workers, later, warn)
        self.callers: Counter[str] = Counter()
        """The number of outbound calls, by how their caller was found."""
        self.inbound = 0
        self.outbound = 0
        self._loose: dict[OutboundCall, None] = {}
        """The outstanding calls that no inbound call in progress is known to have made."""
        self._ending: set[InboundCall] = set()
        """The inbound calls that the program may end (rule 5)."""
        live.recorder.observe_with(self._observation)

    @property
    def in_progress(self) -> int:
        """The number of inbound calls in progress."""
        return len(self._attribution)

    @property
    def long_unattributed(self) -> list[OutboundCall]:
        """The calls that somebody unknown may have waited for since ``UNKNOWN_SECONDS`` or longer. Thread-safe."""
        since = self.live.clock() - UNKNOWN_SECONDS
        loose = [call for call in tuple(self._loose) if call.method not in self._declared and not call.answering]
        return [call for call in loose if call.made.since <= since]

    def counts(self) -> dict[str, Any]:
        """What the calls show of the program, by the field names of :class:`stilltrue.v1.agent_pb2.Sight`. Thread-safe."""
        unexplained = self._unexplained()
        return {
            "servers": 1,
            "calls": self.inbound + self.outbound,
            "blind": tuple(self._blind_spots()),
            "unexplained": unexplained,
            "unexplained_calls": unexplained,
        }

    def _unexplained(self) -> int:
        """The number of calls whose reply is due, that have not moved for a while, and that are in no known wait."""
        since = self.live.clock() - STANDING_SECONDS
        still = [call for call in self.pool.served if call.wait is None and not call.replied and call.moved_at <= since]
        return len(still) - len({call.party for call in still} & set(self.pool.known_queued))

    def _blind_spots(self) -> Iterator[str]:
        """What the calls in progress have left unknown for ``UNKNOWN_SECONDS`` or longer, as text."""
        if unknown := self.long_unattributed:
            yield f"{counted(len(unknown), 'outgoing call')} whose caller is unknown ({_methods_of(unknown)})"
        since = self.live.clock() - UNKNOWN_SECONDS
        unclear_since = self.pool.unclear_since
        if unclear_since is not None and unclear_since <= since:
            yield f"which of {counted(self.in_progress, 'call')} in progress are served is unknown (--workers {self.pool.size})"
        if not self._needs_all:
            several = sum(len(call.waits_for) > 1 and call.waits_since <= since for call in self.pool.served)
            if several:
                yield f"{counted(several, 'party', 'parties')} with several outgoing calls, assumed to wait for any one of them"

    def look(self, request: LookRequest, doubt: str) -> Look:
        """Look again at parties of the program (protocol rule 10), as far as its calls show.

        ``doubt``: why the pool may not be full. The sidecar cannot see the program's threads; it assumes that handlers wait for
        their calls, and watches for counterevidence (rule 4).
        """
        look, now = self.live.look(request), self.live.clock()
        served = {call.party for call in self.pool.served} if doubt else set()
        possible = {one.wait.waiter: one.doubt for one in self._possible_waits(now)}
        leaves = (
            f"the program is closing connections, and may end {counted(len(self._ending), 'call')} on them"
            if self._ending
            else ""
        )
        parties = tuple(
            replace(
                one,
                doubt=one.doubt
                or leaves
                or possible.get(one.party, "")
                or (doubt if one.party in served else self._unsettled(one.party, now)),
            )
            for one in look.parties
        )
        return replace(look, parties=parties)

    def _unsettled(self, party: PartyName, now: float) -> str:
        """Return why the wait of ``party`` is too recent to rely on; empty if it is not, or if there is no wait."""
        call = self._attribution.serving(party)
        if call is None or call.wait is None or now >= call.waits_since + SETTLING_SECONDS:
            return ""
        return f"its wait began less than {SETTLING_SECONDS:g} s ago, and it may be about to make another call"

    def _possible_waits(self, now: float) -> tuple[Possible, ...]:
        """The waits that the program may be in (rule 6). Thread-safe."""
        queued = self.pool.known_queued
        state = ProgramState(
            process=self.live.recorder.process.instance,
            in_progress=self.in_progress,
            served=[call for call in self.pool.served if call.party not in queued],
            loose=tuple(self._loose),
            workers=self.pool.size,
            declared=self._declared,
            now=now,
        )
        return tuple(possible_waits(state))

    def _observation(self, now: float) -> Observation:
        self._count_first_items(now)
        return Observation(waits=(*(one.wait for one in self._possible_waits(now)), *self.pool.queue_waits()))

    @property
    def distrusted(self) -> list[str]:
        """The methods whose calls do not count as waited for, sorted."""
        return sorted(self._distrusted)

    # -- inbound calls -------------------------------------------------------------------------------------------------

    def arrives(self, method: str, stamp: Stamp | None, timeout: float | None, traces: tuple[bytes, ...]) -> InboundCall:
        """A request arrived from outside; ``traces``: its trace-id and ``x-request-id``, those that it has."""
        live = self.live
        self.inbound += 1
        served = live.arrived(stamp, method, True)
        limits = [limit for limit in (timeout, self._call_seconds_max) if limit is not None]
        live.queued(served, self.pool.name, min(limits, default=None))
        call = InboundCall(served, traces, stamped=stamp is not None, moved_at=served.since)
        self._attribution.arrived(call)
        self.pool.arrived(call)
        return call

    def answers(self, call: InboundCall) -> None:
        """The program sent part of its reply."""
        call.replied = True
        if not call.acted:
            self.pool.acted(call)
        if call.wait is not None:
            self._answered_meanwhile(call)

    def item_arrived(self, call: InboundCall) -> None:
        """A message of the request arrived."""
        call.moved_at = self.live.clock()
        self.live.item_received(call.served)

    def item_sent(self, call: InboundCall, count: int) -> None:
        """The program sent the ``count``-th message of its reply.

        The first may be a unary reply, which is no item. It is counted with the second, or once the call outlasts it.
        """
        call.moved_at = self.live.clock()
        if count == 1:
            call.first_item_at = call.moved_at
            return
        if call.first_item_at is not None:
            call.first_item_at = None
            self.live.item_sent(call.served)
        self.live.item_sent(call.served)

    def _count_first_items(self, now: float) -> None:
        """Count the first messages of replies that have not ended: they belong to streams. The recorder is locked."""
        for call in self.pool.served:
            if call.first_item_at is not None and now >= call.first_item_at + GRACE_SECONDS:
                call.first_item_at = None
                self.live.recorder.item_sent(call.served)

    def ends(self, call: InboundCall) -> Pair | None:
        """The program completed its reply; return our stamp for it."""
        self.answers(call)
        pair = self.live.replied(call.served, stamped=True)
        self._over(call, answered=True)
        return pair

    def may_end(self, call: InboundCall) -> None:
        """The program is closing the connection of the call (rule 5)."""
        if not call.over:
            self._ending.add(call)

    def leaves(self, call: InboundCall) -> None:
        """The caller cancelled, or the connection was lost."""
        if not call.over:
            self._stop_waiting(call)
            self.live.replied(call.served)
            self._over(call, answered=False)

    def _over(self, call: InboundCall, *, answered: bool) -> None:
        call.over = True
        self._ending.discard(call)
        self._attribution.ended(call, answered=answered)
        self.pool.over(call)
        self._loose.update(dict.fromkeys(call.made))
        call.made.clear()

    # -- outbound calls ------------------------------------------------------------------------------------------------

    def calls(
        self, method: str, channel: ChannelRecord, timeout: float | None, *, traces: tuple[bytes, ...], party: str
    ) -> tuple[OutboundCall, Pair]:
        """The program makes a call whose headers name ``party`` and ``traces``; return it with our stamp."""
        self.outbound += 1
        if self.outbound == 1:
            self.pool.matters()
        caller, how = self._attribution.caller(party, traces)
        trusted = method not in self._distrusted
        self.callers[how.value if caller is None or trusted else DISTRUSTED] += 1
        if how is Attribution.ENDED:
            self._distrust(method, "it was made after its caller had replied")
        if caller is not None:
            self.pool.acted(caller)
        made, pair = self.live.sent(method, channel, caller.party if caller is not None and trusted else None, timeout, False)
        call = OutboundCall(made, method, caller, counted=trusted, late=how is Attribution.ENDED)
        if caller is None:
            self._loose[call] = None
        else:
            caller.made.append(call)
            self._wait_anew(caller)
        if how is Attribution.AMBIGUOUS:
            for suspect in self._attribution.suspects(traces):  # one of them made it, so its other calls may not block it
                self._uncount(suspect)
        return call, pair

    def asked(self, call: OutboundCall) -> None:
        """The request is complete (rule 1)."""
        call.asked = True
        self._changed(call)

    def answering(self, call: OutboundCall) -> None:
        """The reply has begun (rule 1)."""
        if not call.answering:
            call.answering = True
            self._changed(call)

    def settles(self, call: OutboundCall, stamp: Stamp | None, *, in_doubt: bool) -> None:
        """The outcome is known."""
        self.live.settled(call.made, stamp, in_doubt)
        self._settled(call)

    def cancels(self, call: OutboundCall) -> None:
        """The program cancelled its call."""
        if call.over:
            return
        caller, deadline = call.caller, call.made.deadline
        early = deadline is None or self.live.clock() < deadline - GRACE_SECONDS
        was_awaited = caller is not None and caller.wait is not None and call.made.number in caller.waits_for
        self.settles(call, None, in_doubt=True)
        if early and call.alone and was_awaited and caller is not None:
            self._later(GRACE_SECONDS, lambda: self._cancelled_early(call, caller))

    def _settled(self, call: OutboundCall) -> None:
        call.over = True
        self._loose.pop(call, None)
        caller = call.caller
        if caller is None or caller.over:
            return
        caller.made.remove(call)
        for other in caller.made:
            other.alone = False
            other.counted = other.counted and self._needs_all  # rule 2
        self._wait_anew(caller)

    # -- waits ---------------------------------------------------------------------------------------------------------

    def _changed(self, call: OutboundCall) -> None:
        if call.caller is not None and not call.caller.over:
            self._wait_anew(call.caller)

    def _wait_anew(self, caller: InboundCall) -> None:
        """Update the wait of ``caller``: it waits for its calls only if all of them count as awaited."""
        caller.moved_at = self.live.clock()
        made = caller.made
        wanted = tuple(call.made.number for call in made) if made and all(call.awaited for call in made) else ()
        if wanted == caller.waits_for:
            return
        self._stop_waiting(caller)
        if wanted:
            deadlines = [call.made.deadline for call in made if call.made.deadline is not None]
            caller.waits_for = wanted
            caller.waits_since = self.live.clock()
            caller.wait = self.live.waits(
                caller.party,
                tuple(CallTarget(number=number) for number in wanted),
                needs=len(wanted) if self._needs_all else 1,
                deadline=min(deadlines, default=None),
                uncoloured=True,  # rule 3
                what=f"the reply to {made[0].method}" if len(made) == 1 else "",
            )

    def _stop_waiting(self, caller: InboundCall) -> None:
        if caller.wait is not None:
            self.live.resumes(caller.wait)
        caller.wait = None
        caller.waits_for = ()

    def _uncount(self, caller: InboundCall) -> None:
        for call in caller.made:
            call.counted = False
        self._wait_anew(caller)

    # -- evidence against rule 1 (rule 4) ------------------------------------------------------------------------------

    def _answered_meanwhile(self, caller: InboundCall) -> None:
        """It replies, so it is not blocked. Look again in a moment, since its calls may just be ending."""
        suspects = [call for call in caller.made if call.awaited]
        self._uncount(caller)

        def look_again() -> None:
            now = self.live.clock()
            for call in suspects:
                if not call.over and (call.made.deadline is None or now < call.made.deadline):
                    self._distrust(call.method, f"{caller.party} replied while its call was outstanding")

        self._later(GRACE_SECONDS, look_again)

    def _cancelled_early(self, call: OutboundCall, caller: InboundCall) -> None:
        if not caller.over:
            self._distrust(call.method, f"{caller.party} cancelled its call before any deadline")

    def _distrust(self, method: str, why: str) -> None:
        if method not in self._distrusted and len(self._distrusted) < METHODS_MAX:
            self._distrusted.add(method)
            self._warn(f"{method} no longer counts as awaited: {why}")


def _methods_of(calls: Collection[OutboundCall]) -> str:
    """The methods of ``calls``, for people: the first few."""
    methods = sorted({call.method for call in calls})
    more = [f"{len(methods) - METHODS_NAMED_MAX} more"] if len(methods) > METHODS_NAMED_MAX else []
    return ", ".join([*methods[:METHODS_NAMED_MAX], *more])
