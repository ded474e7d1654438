"""Amends reports with the results of a second look: removes waits that changed, adds deadlines and ways out, and marks doubt.

A pool that some party may enlarge has an unknown size, so its queue waits for no known party.

Amended reports are ordinary reports: the archive stores them, and evaluating them again gives the same verdict.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from itertools import combinations
from math import comb

from stilltrue.model import CallNumber, PartyName, ProcessName
from stilltrue.protocol.report import CallTarget, LocalWait, OutstandingCall, PartyTarget, Report
from stilltrue.protocol.requests.look import PartyLook

CHOICES_MAX = 64
"""Bound on the number of waits that one k-of-n wait is split into when it has ways out."""
NO_DOUBTS: Mapping[ProcessName, str] = {}


def amended(
    reports: Mapping[ProcessName, Report],
    looks: Mapping[PartyName, PartyLook],
    doubts: Mapping[ProcessName, str] = NO_DOUBTS,
    *,
    confirmed: Collection[PartyName] = (),
) -> dict[ProcessName, Report]:
    """Amend the reports with the ``looks`` at their parties and the ``doubts`` about the idleness of processes.

    ``confirmed``: parties that wait for or serve a call that certainly has no copy elsewhere.
    """
    certain = _certain_calls(reports, confirmed)
    return {
        name: amend(report, looks, doubt=doubts.get(name, ""), certain=certain.get(name, frozenset()))
        for name, report in reports.items()
    }


def amend(
    report: Report,
    looks: Mapping[PartyName, PartyLook],
    *,
    doubt: str = "",
    certain: Collection[CallNumber] = (),
) -> Report:
    """Amend one report; returns the same object if nothing changes."""
    interruptible = {call.party: call for call in report.served if (look := looks.get(call.party)) and look.interruptible}
    waits = tuple(
        one.ending(interruptible[one.waiter].deadline) if one.waiter in interruptible else one
        for wait in report.waits
        for one in _amended(wait, looks.get(wait.waiter))
    )
    served = tuple(replace(call, interruptible=True) if call.party in interruptible else call for call in report.served)
    made = tuple(_without_copies(call) if call.number in certain else call for call in report.made)
    growing = {served.pool for served in report.served if (look := looks.get(served.party)) and look.grown_by}
    pools = tuple(replace(pool, size=None) if pool.name in growing else pool for pool in report.pools)
    same = (waits, made, served, pools) == (report.waits, report.made, report.served, report.pools)
    if same and doubt in {"", report.doubt}:
        return report
    return replace(report, waits=waits, made=made, served=served, pools=pools, doubt=doubt or report.doubt)


def _amended(wait: LocalWait, look: PartyLook | None) -> Iterator[LocalWait]:
    """The waits that replace ``wait``; none if its party is free."""
    if look is None:
        yield wait
        return
    if look.doubt:
        yield wait.ending(look.deadline).with_certainty(certain=False)
        return
    if not look.unchanged or any(way.party is None for way in look.ways_out):
        return
    wait = wait.with_certainty(certain=True).ending(look.deadline)
    others = tuple(dict.fromkeys(way.party for way in look.ways_out if way.party not in {None, wait.waiter}))
    ways = tuple(PartyTarget(party=other) for other in others if other is not None)
    if not ways:
        yield wait
    else:
        yield from _with_ways_out(wait, ways)


def _with_ways_out(wait: LocalWait, ways: tuple[PartyTarget, ...]) -> Iterator[LocalWait]:
    """The waits that replace ``wait`` when any one of ``ways`` ends it, too.

    A k-of-n wait ends exactly when at least one target of every choice of n - k + 1 targets has come. So each choice becomes a
    wait for one of its targets or of ``ways``, and all these waits must end. Beyond ``CHOICES_MAX`` the wait is in doubt.
    """
    size = len(wait.among) - wait.needs + 1
    if comb(len(wait.among), size) > CHOICES_MAX:
        yield wait.with_certainty(certain=False)
        return
    for choice in combinations(wait.among, size):
        yield replace(wait, among=tuple(dict.fromkeys((*choice, *ways))), needs=1)


def _without_copies(call: OutstandingCall) -> OutstandingCall:
    return call if call.hedged else replace(call, copies_max=0)


def _certain_calls(
    reports: Mapping[ProcessName, Report], confirmed: Collection[PartyName]
) -> dict[ProcessName, set[CallNumber]]:
    """The calls that confirmed parties wait for or serve, by caller."""
    found: dict[ProcessName, set[CallNumber]] = {}
    if not confirmed:
        return found
    for name, report in reports.items():
        for wait in report.waits:
            if wait.waiter in confirmed:
                numbers = {target.number for target in wait.among if isinstance(target, CallTarget)}
                found.setdefault(name, set()).update(numbers)
        for served in report.served:
            if served.party in confirmed and served.caller is not None:
                found.setdefault(served.caller.process, set()).add(served.number)
    return found
