"""Finds the parties that could free another party by cancelling the call it serves.

Rules:

1. Cancelling a call ends all waits of its handler, if the handler can be interrupted. So each of these waits also ends when the
   caller moves.
2. A caller that waits for this very call, and for nothing that could end without it, moves only when the call is over. It is
   not a way out, unless its own caller can cancel it in turn, or another server may answer a copy of the call. Only a look
   shows that it waits so: a caller whose wait the second look leaves in doubt may move.
3. A call that is over at its caller while its handler is still at work is about to be cancelled.
4. A caller without a stamp, or that is not a member, is outside; by definition, stability does not extend to its actions.
5. If a call may be repeated, its handler may be obsolete and about to be cancelled: a second round decides.
6. A task that a handler awaits, directly or indirectly, is cancelled with it. So is one that another task
   awaits whose wait is in doubt: that may move, too.
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
    """How a party may be freed regardless of its waits: by one of ``parties``, ``by_itself``, or, if ``doubtful``, perhaps."""

    parties: dict[PartyName, None] = field(default_factory=dict)
    by_itself: bool = False
    doubtful: bool = False


_NONE = WaysOut()


class Cancellation:
    """The callers in one snapshot and their waits."""

    def __init__(
        self,
        reports: Mapping[ProcessName, Report],
        missing: frozenset[ProcessName],
        made: Mapping[tuple[ProcessName, CallNumber], OutstandingCall],
        served: Mapping[PartyName, ServedCall],
    ) -> None:
        """``made`` and ``served``: the calls in ``reports``, by caller and number, and by party."""
        self._reports = reports
        self._missing = missing
        self._made = made
        self._served = served
        self._waits: dict[tuple[ProcessName, CallNumber], list[LocalWait]] | None = None
        self._awaiting: dict[PartyName, list[PartyName]] = {}
        """By party, the parties that await it as a task."""
        self._may_move: set[PartyName] = set()
        """Those of them whose waits are in doubt after the second look."""
        for report in reports.values():
            for wait in report.waits:
                if wait.number >= OBSERVED_MIN and not wait.uncoloured:
                    for target in wait.among:
                        if isinstance(target, PartyTarget):
                            self._awaiting.setdefault(target.party, []).append(wait.waiter)
                            if _is_left_in_doubt(wait):
                                self._may_move.add(wait.waiter)

    def ways(self, party: PartyName, budget: Budget) -> WaysOut:
        """How its callers may free ``party``; doubtful if there are more callers than ``budget`` allows."""
        if not self._may_be_cancelled(party):
            return _NONE
        if budget.steps <= 0:
            return WaysOut(doubtful=True)
        ways = WaysOut()
        seen = {party}
        todo = [party]
        while todo:
            current = todo.pop()
            served = self._served.get(current)
            above = self._callers(served, ways) if served is not None and served.interruptible else []
            awaiting = self._awaiting.get(current, ())
            ways.parties.update((one, None) for one in awaiting if one in self._may_move)
            for bound in (*above, *awaiting):  # rules 2, 6
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
        """The parties that are bound to wait for this call. All others that could cancel it are added to ``ways``."""
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
            ways.by_itself = ways.by_itself or not others  # the calling party is unknown, and unknown is active
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
    ends_with_all = wait.needs == len(wait.among) and wait.deadline is None
    return ends_with_all and not wait.uncoloured and not _is_left_in_doubt(wait)


def _is_left_in_doubt(wait: LocalWait) -> bool:
    """Whether the second look could not confirm the wait (None: there was none yet)."""
    return wait.certain is False


def with_ways_out(one: Wait, wait: LocalWait, ways: WaysOut, index: int) -> Iterator[Wait]:
    """Extend ``one``, to which the local ``wait`` resolved, so that it also ends when one of the ways out is taken."""
    uncoloured = one.uncoloured or ways.doubtful
    others = tuple(ways.parties)
    if not others or one.waiter != wait.waiter:  # ways out free the waiter, not an auxiliary party that represents it
        yield replace(one, uncoloured=uncoloured)
        return
    what = f"{one.what}, or cancellation by {' or '.join(others)}"
    if one.needs == 1:
        yield replace(one, among=tuple(dict.fromkeys((*one.among, *others))), uncoloured=uncoloured, what=what)
        return
    auxiliary = PartyName(f"{wait.waiter}~{wait.number}.0{index}")
    yield replace(one, waiter=auxiliary, deadline=None, uncoloured=uncoloured)
    yield replace(one, among=(auxiliary, *others), needs=1, uncoloured=uncoloured, what=what)
