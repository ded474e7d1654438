"""Adds the findings of the verification round to the verdict: where each party is blocked, and which ways out exist."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator
from dataclasses import replace
from itertools import islice

from detector.core.sentences import waiter_in
from detector.core.snapshot import Snapshot
from detector.core.times import clock
from detector.graph.reduction_bounds import left_over
from stilltrue.model import Evidence, Holds, PartyName, Verdict
from stilltrue.protocol.requests.look import PartyLook

_ABOUT_WAITS = frozenset({"deadlock", "gridlock", "orphaned-resource", "quiescence"})
_INSTALLED = re.compile(r"[/\\](?:site|dist)-packages[/\\]|\.pyx:None ")
"""Frames of installed packages, also of compiled ones, which have no line."""
PARTIES_MAX = 50
"""Maximum number of parties that are listed with their code location."""
NAMED_MAX = 8
"""Maximum number of parties that are named with one reason."""


def with_evidence(verdict: Verdict, snapshot: Snapshot) -> Verdict:
    """Add the looks at the parties that the verdict names; unchanged without a second look."""
    if not snapshot.looks:
        return verdict
    if verdict.holds is Holds.TRUE:
        return _with_stacks(verdict, snapshot)
    return replace(verdict, explanation=(*verdict.explanation, *_ways_out(verdict, snapshot)))


def _with_stacks(verdict: Verdict, snapshot: Snapshot) -> Verdict:
    named = dict.fromkeys((*verdict.witness.parties, *verdict.core, *verdict.remainder))
    seen = [snapshot.looks[party] for party in named if party in snapshot.looks][:PARTIES_MAX]
    found = tuple(Evidence(party=look.party, stack=look.stack, trace=look.trace) for look in seen if look.stack or look.trace)
    helpers = _helpers(seen)
    locations = {look.party: location for look in seen if (location := _location(look, helpers))}
    told = dict.fromkeys((*verdict.witness.parties, *map(waiter_in, verdict.explanation)))
    sentences = tuple(f"{party} is {locations[party]}" for party in told if party in locations)
    return replace(verdict, evidence=found, explanation=(*verdict.explanation, *sentences))


def _helpers(looks: Iterable[PartyLook]) -> frozenset[str]:
    """The lines at which parties are that came there from different lines: their own do not tell what the parties do."""
    callers: dict[str, set[str]] = {}
    for look in looks:
        if len(look.stack) > 1:
            callers.setdefault(look.stack[0], set()).add(look.stack[1])
    return frozenset(line for line, known in callers.items() if len(known) > 1)


def _location(look: PartyLook, helpers: Container[str]) -> str:
    line = f"at {look.stack[0]}" if look.stack else ""
    begun = 1 if look.stack and look.stack[0] in helpers else 0
    own = next((frame for frame in look.stack[begun:] if not _INSTALLED.search(frame)), None)
    if own is not None and own != look.stack[0]:  # the first is in a driver, say: people look for their own line
        line += f", called from {own}"
    trace = f"in trace {look.trace}" if look.trace else ""
    return ", ".join(filter(None, (line, trace)))


def _ways_out(verdict: Verdict, snapshot: Snapshot) -> Iterator[str]:
    """Explain why suspects in the verdict's scope are not deadlocked: a sentence for each reason, ``PARTIES_MAX`` at most.

    A doubt that the verdict's own text gives already is left out; so are ways out that only stuck parties could take.
    """
    if verdict.predicate not in _ABOUT_WAITS:
        return
    inside = snapshot.processes
    stuck = left_over(snapshot.waits, snapshot.missing, certain=True)
    suspects: dict[str, list[PartyName]] = {}
    for party, look in snapshot.looks.items():
        told = look.doubt and f"({look.doubt})" in verdict.witness.text
        reason = "" if told else _reason(look, stuck=party in stuck)
        if reason and party.partition("/")[0] in inside:
            suspects.setdefault(reason, []).append(party)
    for reason, parties in islice(suspects.items(), PARTIES_MAX):
        more = f", and {len(parties) - NAMED_MAX} more" if len(parties) > NAMED_MAX else ""
        each = "each " if len(parties) > 1 and reason.startswith(("has ", "waits ")) else ""
        yield f"{', '.join(parties[:NAMED_MAX])}{more} seemed stuck, but {each}{reason}"


def _reason(look: PartyLook, *, stuck: bool) -> str:
    if not look.unchanged:
        return f"had moved on by the second look{f': {look.doubt}' if look.doubt else ''}"
    if look.doubt:
        return f"this could not be verified: {look.doubt}"
    if look.ways_out and not stuck:
        ways = " or ".join(f"{way.text} ({way.party})" if way.party else way.text for way in look.ways_out)
        return f"has a way out: {ways}"
    return f"waits until {clock(look.deadline)} at the latest" if look.deadline is not None else ""
