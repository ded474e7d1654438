"""Turns reductions into the verdict of a predicate about blocked parties, with evidence for each of the three answers."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from detector.core.snapshot import Snapshot
from detector.core.times import clock
from detector.core.waits.resolution import owner_of
from detector.graph.columns import Bools, Ints
from detector.graph.partial import ReductionBounds
from detector.graph.reduction import Reduction
from detector.graph.remainder import RemainderGraph, remainder_graph
from detector.graph.witness import Evidence, evidence
from detector.predicates.evidence.explain import sentences, shortened
from stilltrue.model import Holds, PartyName, ProcessName, Verdict, Witness, process_of

NAMED_MAX = 12
"""The most parties that a FALSE or UNDETERMINED verdict names; often every party could still move."""


def blocked_verdict(name: str, snapshot: Snapshot, found: ReductionBounds, graph: RemainderGraph | None) -> Verdict:
    """The verdict that ``found`` supports: TRUE when even the certain view leaves a remainder (``graph``; section 6)."""
    if graph is not None:
        return _true(name, snapshot, graph)
    if not found.anything_stuck(found.pessimistic):
        return _false(name, snapshot, found)
    return _undetermined(name, snapshot, found)


def certain_graph(snapshot: Snapshot, found: ReductionBounds) -> RemainderGraph | None:
    """The certain remainder as a graph, or None when it is empty."""
    return remainder_graph(snapshot.waits, found.certain) if found.anything_stuck(found.certain) else None


def as_of(snapshot: Snapshot) -> str:
    """The moment that a FALSE speaks of: when the snapshot began, if that is known."""
    begun = snapshot.ref.begun
    return "when the snapshot began" if begun is None else f"as of {clock(begun)}"


def _true(name: str, snapshot: Snapshot, graph: RemainderGraph) -> Verdict:
    waits = snapshot.waits
    proof = evidence(graph)
    parties = waits.named(proof.witness)
    remainder = waits.named(graph.parties)
    known = frozenset(remainder)
    return Verdict(
        predicate=name,
        holds=Holds.TRUE,
        witness=Witness(kind=proof.kind, parties=parties, text=_proof_text(proof, parties)),
        snapshot=snapshot.ref,
        remainder=_people(remainder, known),
        core=_people(waits.named(proof.core), known),
        behind=_people(waits.named(proof.behind), known),
        missing=snapshot.missing,
        explanation=sentences(snapshot, proof.waits.tolist(), len(parties)),
    )


def _people(names: tuple[PartyName, ...], known: frozenset[PartyName]) -> tuple[PartyName, ...]:
    """``names`` without the auxiliary nodes (``party~3.1``) that stand for a ``known`` party's wait for k of several sets."""
    return tuple(name for name in names if "~" not in name or owner_of(name) not in known)


def _proof_text(proof: Evidence, parties: tuple[PartyName, ...]) -> str:
    if proof.kind == "cycle":
        if len(parties) == 1:
            return f"{parties[0]} waits for itself"
        return f"cycle: {' -> '.join((*shortened(parties), parties[0]))}"
    return f"knot: {len(parties)} parties wait only for each other: {', '.join(shortened(parties))}"


def _false(name: str, snapshot: Snapshot, found: ReductionBounds) -> Verdict:
    waits = snapshot.waits
    movers = _movers(snapshot, found)
    shown = waits.named(movers[:NAMED_MAX])
    blocked = len(np.unique(waits.waiter[~found.missing[waits.waiter]]))
    if not blocked:
        text = f"no {'reporting ' * bool(snapshot.missing)}party was waiting {as_of(snapshot)}"
    else:
        runnable = ", ".join(shortened(shown, len(movers)))
        waiting = "the one waiting party" if blocked == 1 else f"each of the {blocked} waiting parties"
        why = f"{runnable} could run" if runnable else "every wait has a deadline"
        text = f"{waiting} could still be freed {as_of(snapshot)}: {why}"
    return Verdict(
        predicate=name,
        holds=Holds.FALSE,
        witness=Witness(kind="free", parties=shown, text=text),
        snapshot=snapshot.ref,
        missing=snapshot.missing,
    )


def _movers(snapshot: Snapshot, found: ReductionBounds) -> Ints:
    """The parties that could move first: those that others wait for and that wait for nothing, or only until a deadline."""
    waits = snapshot.waits
    first = np.ones(len(waits.names), np.bool_)
    lasting = np.isnan(waits.deadline)
    first[waits.waiter[lasting]] = False
    return np.flatnonzero(first & ~found.missing)


def _undetermined(name: str, snapshot: Snapshot, found: ReductionBounds) -> Verdict:
    waits = snapshot.waits
    unconfirmed = found.anything_stuck(found.doubtful)
    seen = found.doubtful if unconfirmed else found.pessimistic
    left = np.flatnonzero(~seen.free & ~found.missing)
    parties = waits.named(left[:NAMED_MAX])
    named = ", ".join(shortened(parties, len(left)))
    decisive = _decisive(snapshot, found.pessimistic, found.missing)
    if unconfirmed:
        text = f"{named} may be deadlocked: {not_certain(snapshot, parties)}"
    else:
        text = f"{named} may be deadlocked: it depends on {', '.join(decisive)}, which did not report"
    return Verdict(
        predicate=name,
        holds=Holds.UNDETERMINED,
        witness=Witness(kind="unconfirmed" if unconfirmed else "missing", parties=parties, text=text),
        snapshot=snapshot.ref,
        missing=snapshot.missing,
        decisive=decisive,
    )


def not_certain(snapshot: Snapshot, names: Iterable[str]) -> str:
    """Why the waits of these parties (or of these processes' parties) are in doubt."""
    wanted = frozenset(names)
    doubts = [
        f"{party} {'could not be' if look.unchanged else 'had gone on when it was'} looked at again ({look.doubt})"
        for party, look in snapshot.looks.items()
        if look.doubt and (party in wanted or process_of(party) in wanted)
    ]
    return "; ".join(shortened(doubts, most=3)) or "nothing confirms their waits: no stamp, and no second look"


def _decisive(snapshot: Snapshot, pessimistic: Reduction, missing: Bools) -> tuple[ProcessName, ...]:
    """The missing processes that a party of the remainder waits for: only their reports can decide."""
    leaning = pessimistic.targets[missing[pessimistic.targets]]
    return tuple(sorted({process_of(name) for name in snapshot.waits.named(np.unique(leaning))}))
