"""Finds who could free a party by cancelling the call it serves: its caller, unless that is bound to wait for the outcome.

Rules:

1. Cancelling a call ends all waits of its handler, if the caller can interrupt it. So each of these waits ends, too, when the
   caller moves.
2. A caller that waits for this very call, and for nothing that could end without it, moves only when the call is over: it is no
   way out, unless its own caller can cancel it in turn, or the call may be answered by another server that has a copy of it.
3. A call that is over at its caller, while its handler is still at work, is about to be cancelled.
4. A caller without a stamp, or that is not a member, is outside: its acts end stability by decree.
5. The handler of a call that may be repeated may have been left behind, about to be cancelled: a second round decides.
6. A task that a handler awaits, directly or not, is cancelled with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice

from detector.core.waits.budget import WAYS_MAX, Budget
from stilltrue.model import CallNumber, PartyName, ProcessName, Wait
from stilltrue.protocol.report import OBSERVED_MIN, CallTarget, LocalWait, OutstandingCall, PartyTarget, Report, ServedCall


@dataclass(slots=True, kw_only=True)
class WaysOut:
    """How a party may be freed, whatever it waits for: by one of ``parties``, ``by_itself``; ``doubtful``: perhaps (rule 5)."""

    parties: dict[PartyName, None] = field(default_factory=dict)
    by_itself: bool = False
    doubtful: bool = False


_NONE = WaysOut()


class Cancellation:
    """The callers in one snapshot, and what they wait for."""

    def __init__(
        self,
        reports: Mapping[ProcessName, Report],
        missing: frozenset[ProcessName],
        made: Mapping[tuple[ProcessName, CallNumber], OutstandingCall],
        served: Mapping[PartyName, ServedCall],
    ) -> None:
        """``made`` by caller and number, ``served`` by party: those of ``reports``."""
        self._reports = reports
        self._missing = missing
        self._made = made
        self._served = served
        self._waits: dict[tuple[ProcessName, CallNumber], list[LocalWait]] | None = None
        self._awaiting: dict[PartyName, list[PartyName]] = {}
        """By party, those that await it as a task."""
        for report in reports.values():
            for wait in report.waits:
                if wait.number >= OBSERVED_MIN and not wait.uncoloured:
                    for target in wait.among:
                        if isinstance(target, PartyTarget):
                            self._awaiting.setdefault(target.party, []).append(wait.waiter)

    def ways(self, party: PartyName, budget: Budget) -> WaysOut:
        """How its callers may free ``party``; doubtful where there are more of them than ``budget`` allows to look at."""
        if not self._may_be_cancelled(party):
            return _NONE
        if budget.steps <= 0:
            return WaysOut(doubtful=True)
        ways = WaysOut()
        seen = {party}
        todo = [party]
        while todo:
            who = todo.pop()
            served = self._served.get(who)
            above = self._callers(served, ways) if served is not None and served.interruptible else []
            for bound in (*above, *self._awaiting.get(who, ())):  # rules 2, 6
                if bound not in seen and self._may_be_cancelled(bound):
                    seen.add(bound)
                    todo.append(bound)
        budget.steps -= len(seen) + len(ways.parties)
        ways.parties.pop(party, None)
        if len(ways.parties) > WAYS_MAX:
            ways.parties = dict.fromkeys(islice(ways.parties, WAYS_MAX))
            ways.doubtful = True
        return ways

    def _may_be_cancelled(self, party: PartyName) -> bool:
        served = self._served.get(party)
        return served.interruptible if served is not None else party in self._awaiting

    def _callers(self, served: ServedCall, ways: WaysOut) -> list[PartyName]:
        """The parties that are bound to wait for this call; all others that could cancel it go into ``ways``."""
        if served.caller is None or served.hung_up:
            return []
        name = served.caller.process
        if name in self._missing:
            ways.parties[PartyName(name)] = None
            return []
        source = self._reports.get(name)
        if source is None or source.process.incarnation != served.caller.incarnation:
            return []  # rule 4
        call = self._made.get((name, served.number))
        if call is None or call.doubtful:
            ways.by_itself = True  # rule 3
            return []
        ways.doubtful = ways.doubtful or (call.copies_max > 1 and not call.hedged)
        waits = self._waits_for(name, served.number)
        alone = call.deadline is None and call.copies_max <= 1
        bound = [wait.waiter for wait in waits if alone and _is_bound(wait)]
        if not bound:
            others = [wait.waiter for wait in waits]
            if call.party is not None:
                others.append(call.party)
            ways.parties.update(dict.fromkeys(others))
            ways.by_itself = ways.by_itself or not others  # who called is unknown, and unknown is active
        return bound

    def _waits_for(self, name: ProcessName, number: CallNumber) -> list[LocalWait]:
        if self._waits is None:
            self._waits = {}
            for process, report in self._reports.items():
                for wait in report.waits:
                    for target in wait.among:
                        if isinstance(target, CallTarget):
                            self._waits.setdefault((process, target.number), []).append(wait)
        return self._waits.get((name, number), [])


def _is_bound(wait: LocalWait) -> bool:
    """Whether the waiter goes on only when every target is satisfied (a stream item may come before the stream is over)."""
    return wait.needs == len(wait.among) and wait.deadline is None and not wait.uncoloured


def with_ways_out(one: Wait, wait: LocalWait, ways: WaysOut, index: int) -> Iterator[Wait]:
    """``one`` of the waits that ``wait`` comes to, which also ends when one of the ways out is taken."""
    uncoloured = one.uncoloured or ways.doubtful
    others = tuple(ways.parties)
    if not others or one.waiter != wait.waiter:  # a stand-in of the waiter's is not the one to be freed
        yield replace(one, uncoloured=uncoloured)
        return
    what = f"{one.what}, or to be cancelled by {' or '.join(others)}"
    if one.needs == 1:
        yield replace(one, among=tuple(dict.fromkeys((*one.among, *others))), uncoloured=uncoloured, what=what)
        return
    stand = PartyName(f"{wait.waiter}~{wait.number}.0{index}")
    yield replace(one, waiter=stand, deadline=None, uncoloured=uncoloured)
    yield replace(one, among=(stand, *others), needs=1, uncoloured=uncoloured, what=what)
