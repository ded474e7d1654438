"""Adds what the verification round saw to the verdict: where each party is blocked, and which ways out were found."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from detector.core.snapshot import Snapshot
from detector.core.times import clock
from stilltrue.model import Evidence, Holds, PartyName, Verdict
from stilltrue.protocol.requests.look import PartyLook

_ABOUT_WAITS = frozenset({"deadlock", "gridlock", "orphaned-resource", "quiescence"})
PARTIES_MAX = 50
"""The most parties whose place is listed."""


def with_evidence(verdict: Verdict, snapshot: Snapshot) -> Verdict:
    """The verdict with what was seen of the parties it names; unchanged without a second look."""
    if not snapshot.looks:
        return verdict
    if verdict.holds is Holds.TRUE:
        return _of_the_stuck(verdict, snapshot)
    return replace(verdict, explanation=(*verdict.explanation, *_ways_out(verdict, snapshot)))


def _of_the_stuck(verdict: Verdict, snapshot: Snapshot) -> Verdict:
    named = dict.fromkeys((*verdict.witness.parties, *verdict.core, *verdict.remainder))
    seen = [snapshot.looks[party] for party in named if party in snapshot.looks][:PARTIES_MAX]
    found = tuple(Evidence(party=look.party, stack=look.stack, trace=look.trace) for look in seen if look.stack or look.trace)
    places = {look.party: place for look in seen if (place := _place(look))}
    standing = tuple(f"{party} is {places[party]}" for party in verdict.witness.parties if party in places)
    return replace(verdict, evidence=found, explanation=(*verdict.explanation, *standing))


def _place(look: PartyLook) -> str:
    stands = f"at {look.stack[0]}" if look.stack else ""
    trace = f"in trace {look.trace}" if look.trace else ""
    return ", ".join(filter(None, (stands, trace)))


def _ways_out(verdict: Verdict, snapshot: Snapshot) -> Iterator[str]:
    """Why suspects are not accused: a bounded number of sentences about parties in the verdict's scope."""
    if verdict.predicate not in _ABOUT_WAITS:
        return
    count = 0
    inside = snapshot.processes
    for party, look in snapshot.looks.items():
        reason = _reason(party, look)
        if reason and party.partition("/")[0] in inside:
            yield reason
            count += 1
            if count >= PARTIES_MAX:
                return


def _reason(party: PartyName, look: PartyLook) -> str:
    if not look.unchanged:
        return f"{party} seemed stuck, but had gone on at the second look{f': {look.doubt}' if look.doubt else ''}"
    if look.doubt:
        return f"{party} seemed stuck and could not be looked at again: {look.doubt}"
    if look.ways_out:
        ways = " or ".join(f"{way.text} ({way.party})" if way.party else way.text for way in look.ways_out)
        return f"{party} seemed stuck, but has a way out: {ways}"
    return f"{party} seemed stuck, but waits until {clock(look.deadline)} at the latest" if look.deadline is not None else ""
