"""The program as its sidecar sees it: the calls to and from the program show which party waits for which.

No I/O: the relay reports events in order and gets the stamps to add. The rules of waiting, argued in docs/sidecar.md:

1. A handler that makes a call waits for it, from when the request is complete until the reply begins.
2. With several outstanding calls it waits for one of them (or for all, if so declared); once one has ended, the others no
   longer count.
3. Every wait is uncoloured: no verdict relies on it until a second look has found the very same wait.
4. Evidence against rule 1 disqualifies a method for good: its caller replied while the call was outstanding, made it after
   replying, or cancelled it before any deadline.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

from detector.core.counting import counted
from detector.sidecar.attribution import Attribution, CallerAttribution
from detector.sidecar.tracking.calls import InboundCall, OutboundCall
from detector.sidecar.tracking.pool import GRACE_SECONDS, Later, ProgramPool
from stilltrue.model import PartyName
from stilltrue.protocol.books.ledger import ChannelRecord
from stilltrue.protocol.report import CallTarget
from stilltrue.protocol.requests.look import Look, LookRequest
from stilltrue.protocol.stamp import Stamp
from stilltrue.runtime.recorder import LockedRecorder, Pair

DISTRUSTED = "distrusted"
SETTLING_SECONDS = 0.1
"""How long a wait must have lasted at the second look: its caller may be about to make another call, or has made one that has
not reached the sidecar yet."""
UNKNOWN_SECONDS = 1.0
"""How long a call of an unknown caller must have lasted to be reported: a shorter one holds up nobody."""
METHODS_MAX = 1_000


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
    ) -> None:
        """``workers``: the number of calls served at once (None: unknown). ``never_awaited``: methods that are not awaited.

        ``needs_all``: a handler with several outstanding calls waits for all of them. ``warn`` is called when an assumption
        turns out to be wrong.
        """
        self.live = live
        self._later = later
        self._warn = warn
        self._needs_all = needs_all
        self._attribution = CallerAttribution()
        self._distrusted = set(never_awaited)
        self.pool = ProgramPool(live, workers, later, warn)
        self.callers: Counter[str] = Counter()
        """The number of outbound calls, by how their caller was found."""
        self.inbound = 0
        self.outbound = 0
        self._of_unknown: set[OutboundCall] = set()
        """The calls under way whose caller is unknown, made while calls were served: one of these may wait for them."""

    @property
    def in_progress(self) -> int:
        """The number of inbound calls in progress."""
        return len(self._attribution)

    def counts(self) -> dict[str, Any]:
        """What the calls show of the program, by the field names of :class:`stilltrue.v1.agent_pb2.Sight`."""
        since = self.live.clock() - UNKNOWN_SECONDS
        unknown = sum(call.made.since <= since for call in self._of_unknown)
        blind = f"{counted(unknown, 'outgoing call')} whose caller is unknown"
        return {"servers": 1, "calls": self.inbound + self.outbound, "blind": (blind,) if unknown else ()}

    def look(self, request: LookRequest, doubt: str) -> Look:
        """Look again at parties of the program (rule 10), as far as its calls show; ``doubt``: why the pool may not be full.

        The sidecar cannot see the program's threads; it assumes that handlers wait for their calls, and watches for
        counterevidence (rule 4).
        """
        look, now = self.live.look(request), self.live.clock()
        served = {call.party for call in self.pool.served} if doubt else set()
        parties = tuple(
            replace(one, doubt=one.doubt or (doubt if one.party in served else self._unsettled(one.party, now)))
            for one in look.parties
        )
        return replace(look, parties=parties)

    def _unsettled(self, party: PartyName, now: float) -> str:
        """Return why the wait of ``party`` is too recent to rely on; empty if it is not, or if there is no wait."""
        call = self._attribution.serving(party)
        if call is None or call.wait is None or now >= call.waits_since + SETTLING_SECONDS:
            return ""
        return f"its wait began less than {SETTLING_SECONDS:g} s ago, and it may be about to make another call"

    @property
    def distrusted(self) -> list[str]:
        """The methods whose calls do not count as waited for, sorted."""
        return sorted(self._distrusted)

    # -- inbound calls -------------------------------------------------------------------------------------------------

    def arrives(self, method: str, stamp: Stamp | None, timeout: float | None, trace: bytes) -> InboundCall:
        """A request arrived from outside."""
        live = self.live
        self.inbound += 1
        served = live.arrived(stamp, method, True)
        live.queued(served, self.pool.name, timeout)
        call = InboundCall(served, trace, stamped=stamp is not None)
        self._attribution.arrived(call)
        self.pool.arrived(call)
        return call

    def answers(self, call: InboundCall) -> None:
        """The program sent part of its reply."""
        if not call.acted:
            self.pool.acted(call)
        if call.wait is not None:
            self._answered_meanwhile(call)

    def ends(self, call: InboundCall) -> Pair | None:
        """The program completed its reply; return our stamp for it."""
        self.answers(call)
        pair = self.live.replied(call.served, stamped=True)
        self._over(call, answered=True)
        return pair

    def leaves(self, call: InboundCall) -> None:
        """The caller cancelled, or the connection was lost."""
        if not call.over:
            self._stop_waiting(call)
            self.live.replied(call.served)
            self._over(call, answered=False)

    def _over(self, call: InboundCall, *, answered: bool) -> None:
        call.over = True
        self._attribution.ended(call, answered=answered)
        self.pool.over(call)
        call.made.clear()

    # -- outbound calls ------------------------------------------------------------------------------------------------

    def calls(
        self, method: str, channel: ChannelRecord, timeout: float | None, *, trace: bytes, party: str
    ) -> tuple[OutboundCall, Pair]:
        """The program makes a call whose headers name ``party`` and ``trace``; return it with our stamp."""
        self.outbound += 1
        caller, how = self._attribution.caller(party, trace)
        trusted = method not in self._distrusted
        self.callers[how.value if caller is None or trusted else DISTRUSTED] += 1
        if how is Attribution.ENDED:
            self._distrust(method, "it was made after its caller had replied")
        if caller is not None:
            self.pool.acted(caller)
        made, pair = self.live.sent(method, channel, caller.party if caller is not None and trusted else None, timeout, False)
        call = OutboundCall(made, method, caller, counted=trusted)
        if caller is None and self.in_progress:
            self._of_unknown.add(call)
        if caller is not None:
            caller.made.append(call)
            self._wait_anew(caller)
        elif how is Attribution.AMBIGUOUS:
            for suspect in self._attribution.suspects(trace):  # one of them made it, so its other calls may not block it
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
        self._of_unknown.discard(call)
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
