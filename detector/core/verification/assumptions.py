"""Lists the assumptions that a TRUE rests on, which neither a snapshot nor a second look can check (docs/proofs.md)."""

from __future__ import annotations

from dataclasses import replace

from detector.core.snapshot import Snapshot
from stilltrue.model import Holds, Verdict

OUTSIDE = "nothing outside cancels a call, closes a channel or stops a server: no operator, no signal, no future request"
REPORTED = "the processes report their own waits correctly, and what the application declares to its agent is true"
LOOKED = "the second look saw every thread, task, timer and callback that could end one of the waits"
NOT_LOOKED = "the snapshot shows everything that could end one of the waits (there was no second look)"
CLOCKS = "the processes' clocks run at the same speed until the time given"
MEMBERS = "every process that can send a message is a member"
OWN_ACCORD = "all work that a process starts on its own is recorded, declared (busy, active) or seen by the second look"
STEPS = "facts change in the same step as the message they belong to (agent.atomic)"
STABLE = "the predicate is stable: once true, it stays true"

_WAITS = ("deadlock", "gridlock", "orphaned-resource")
_IDLENESS = ("termination", "quiescence", "phase-ended", "lost-message")
_TOKENS = ("token-lost", "token-duplicated")


def with_assumptions(verdict: Verdict, snapshot: Snapshot) -> Verdict:
    """Add the assumptions that a TRUE rests on, after those it already names; other verdicts are unchanged."""
    if verdict.holds is not Holds.TRUE:
        return verdict
    found = dict.fromkeys((*verdict.assumptions, *_assumed(verdict, snapshot)))
    return replace(verdict, assumptions=tuple(found))


def _assumed(verdict: Verdict, snapshot: Snapshot) -> tuple[str, ...]:
    if verdict.predicate in _WAITS:
        seen = LOOKED if snapshot.looks else NOT_LOOKED
        return (REPORTED, seen, OUTSIDE, *((CLOCKS,) if verdict.until is not None else ()))
    if verdict.predicate in _IDLENESS:
        return (MEMBERS, OWN_ACCORD, *((STEPS,) if verdict.predicate == "phase-ended" else ()))
    return (MEMBERS, STEPS) if verdict.predicate in _TOKENS else (STABLE,)
