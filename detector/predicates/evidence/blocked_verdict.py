"""Builds the verdict of a predicate about blocked parties from its reductions, with evidence for each of the three answers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from detector.core.counting import counted
from detector.core.snapshot import Snapshot
from detector.core.times import clock
from detector.core.waits.resolution import owner_of
from detector.graph.columns import Bools, Ints, WaitColumns
from detector.graph.reduction import Reduction
from detector.graph.reduction_bounds import ReductionBounds
from detector.graph.remainder import RemainderGraph, remainder_graph
from detector.graph.witness import Evidence, evidence
from detector.predicates.evidence.explanation import listed, sentences, shortened
from stilltrue.model import Holds, PartyName, ProcessName, SnapshotRef, Verdict, Witness, process_of

NAMED_MAX = 12
"""Maximum number of parties that a FALSE or UNDETERMINED verdict names; often every party could still move."""
DOUBTED_MAX = 3
"""Maximum number of parties that are named with the same reason for doubt."""
OTHER_CORES_MAX, OTHER_WAITS_MAX = 3, 8
"""Maximum number of separate deadlocks that a TRUE describes besides its witness, and of the waits that it lists of each."""


def blocked_verdict(name: str, snapshot: Snapshot, found: ReductionBounds, graph: RemainderGraph | None) -> Verdict:
    """The verdict that ``found`` supports: TRUE if even the certain view has a remainder, ``graph`` (section 6)."""
    if graph is not None:
        return _true(name, snapshot, graph)
    if not found.anything_stuck(found.pessimistic):
        return _false(name, snapshot, found)
    return _undetermined(name, snapshot, found)


def certain_graph(snapshot: Snapshot, found: ReductionBounds) -> RemainderGraph | None:
    """The certain remainder as a graph; None if it is empty."""
    return remainder_graph(snapshot.waits, found.certain) if found.anything_stuck(found.certain) else None


def as_of(ref: SnapshotRef) -> str:
    """The time that a FALSE refers to, as text: when the snapshot began."""
    return "when the snapshot began" if ref.begun is None else f"as of {clock(ref.begun)}"


def first_movers(waits: WaitColumns, missing: Bools) -> Ints:
    """The parties that could move first: those that are waited for and wait for nothing, or only until a deadline."""
    first = np.ones(len(waits.names), np.bool_)
    first[waits.waiter[np.isnan(waits.deadline)]] = False
    return np.flatnonzero(first & ~missing)


def waiting_parties(waits: WaitColumns, missing: Bools) -> Ints:
    """The parties that wait, without those of missing members, whose waits are stale."""
    found = np.zeros(len(waits.names), np.bool_)
    found[waits.waiter] = True
    return np.flatnonzero(found & ~missing)


def free_witness(ref: SnapshotRef, shown: tuple[PartyName, ...], *, movers: int, waiting: int, absent: bool) -> Witness:
    """The witness of a FALSE.

    Parameters
    ----------
    shown : the first of the ``movers``, at most ``NAMED_MAX``.
    movers, waiting : the number of parties that could move first, and of those that wait.
    absent : whether any member is missing.
    """
    if not waiting:
        text = f"no {'reporting ' * absent}party was waiting {as_of(ref)}"
    else:
        runnable = listed(shown, movers)
        waiters = "the one waiting party" if waiting == 1 else f"each of the {waiting} waiting parties"
        why = f"{runnable} could run" if runnable else "every wait has a deadline or an ended holder"
        text = f"{waiters} could still be freed {as_of(ref)}: {why}"
    return Witness(kind="free", parties=shown, text=text)


def _true(name: str, snapshot: Snapshot, graph: RemainderGraph) -> Verdict:
    waits = snapshot.waits
    proof = evidence(graph, waits.since)
    parties = waits.named(proof.witness)
    remainder = waits.named(graph.parties)
    known = frozenset(remainder)
    others = _other_cores(graph, proof)
    separate = f"; separately, {counted(len(others), 'more such group')}" if others else ""
    return Verdict(
        predicate=name,
        holds=Holds.TRUE,
        witness=Witness(kind=proof.kind, parties=parties, text=_proof_text(proof, parties) + separate),
        snapshot=snapshot.ref,
        remainder=_without_auxiliaries(remainder, known),
        core=_without_auxiliaries(waits.named(proof.core), known),
        behind=_without_auxiliaries(waits.named(proof.behind), known),
        missing=snapshot.missing,
        explanation=(*sentences(snapshot, proof.waits.tolist(), len(parties)), *_described(snapshot, graph, others)),
    )


def _other_cores(graph: RemainderGraph, proof: Evidence) -> list[int]:
    """The labels of the strong components of the core without the witness."""
    told = graph.labels[np.isin(graph.parties, proof.witness)]
    others = graph.labels[graph.cyclic & ~np.isin(graph.labels, told)]
    labels, first = np.unique(others, return_index=True)
    found: list[int] = labels[np.argsort(first)].tolist()
    return found


def _described(snapshot: Snapshot, graph: RemainderGraph, cores: Sequence[int]) -> tuple[str, ...]:
    """The parties of the first few of these components, and their waits if few."""
    texts: list[str] = []
    for label in cores[:OTHER_CORES_MAX]:
        inside = graph.labels == label
        names = [name for name in snapshot.waits.named(graph.parties[inside]) if "~" not in name]
        own = _oldest_waits(snapshot, graph, inside)
        texts.append(f"separately, {_in_circle(names)}")
        texts += sentences(snapshot, own, len(own)) if len(own) <= OTHER_WAITS_MAX else ()
    left = len(cores) - OTHER_CORES_MAX
    return (*texts, f"and {counted(left, 'more such group')}") if left > 0 else tuple(texts)


def _oldest_waits(snapshot: Snapshot, graph: RemainderGraph, inside: Bools) -> list[int]:
    """Of each party of a component, its oldest wait for others of it: one that the application declares says the most."""
    chosen: dict[int, int] = {}
    began = np.nan_to_num(snapshot.waits.since[graph.waits], nan=np.inf)
    for wait in np.flatnonzero(inside[graph.waiter]).tolist():
        waiter = int(graph.waiter[wait])
        if inside[graph.targets_of(wait)].any() and (waiter not in chosen or began[wait] < began[chosen[waiter]]):
            chosen[waiter] = wait
    waiters = snapshot.waits.named(graph.parties[list(chosen)])
    return [int(graph.waits[wait]) for wait, waiter in zip(chosen.values(), waiters, strict=True) if "~" not in waiter]


def _without_auxiliaries(names: tuple[PartyName, ...], known: frozenset[PartyName]) -> tuple[PartyName, ...]:
    """``names`` without the auxiliary parties (``party~3.1``) that represent part of a ``known`` party's wait."""
    return tuple(name for name in names if "~" not in name or owner_of(name) not in known)


def _in_circle(names: Sequence[PartyName]) -> str:
    if len(names) == 1:
        return f"{names[0]} waits for itself"
    return f"{len(names)} parties wait for each other: {listed(names)}"


def _proof_text(proof: Evidence, parties: tuple[PartyName, ...]) -> str:
    if proof.kind == "cycle":
        if len(parties) == 1:
            return f"{parties[0]} waits for itself"
        return f"cycle: {' -> '.join((*shortened(parties), parties[0]))}"
    return f"knot: {len(parties)} parties wait only for each other: {listed(parties)}"


def _false(name: str, snapshot: Snapshot, found: ReductionBounds) -> Verdict:
    waits, missing = snapshot.waits, found.missing
    first = first_movers(waits, missing)
    shown = waits.named(first[:NAMED_MAX])
    witness = free_witness(
        snapshot.ref, shown, movers=len(first), waiting=len(waiting_parties(waits, missing)), absent=bool(snapshot.missing)
    )
    return Verdict(predicate=name, holds=Holds.FALSE, witness=witness, snapshot=snapshot.ref, missing=snapshot.missing)


def _undetermined(name: str, snapshot: Snapshot, found: ReductionBounds) -> Verdict:
    waits = snapshot.waits
    unconfirmed = found.anything_stuck(found.doubtful)
    seen = found.doubtful if unconfirmed else found.pessimistic
    left = np.flatnonzero(~seen.free & ~found.missing)
    parties = waits.named(left[:NAMED_MAX])
    named = listed(parties, len(left))
    decisive = _decisive(snapshot, found.pessimistic, found.missing)
    if unconfirmed:
        text = f"{named} may be deadlocked: {not_certain(snapshot, waits.named(left))}"
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
    reasons: dict[tuple[str, str], list[PartyName]] = {}
    for party, look in snapshot.looks.items():
        if look.doubt and (party in wanted or process_of(party) in wanted):
            why = "could not be" if look.unchanged else "had moved on when it was"
            reasons.setdefault((why, look.doubt), []).append(party)
    doubts = [
        f"{listed(parties[:DOUBTED_MAX], len(parties))} {why} looked at again ({doubt})"
        for (why, doubt), parties in reasons.items()
    ]
    return "; ".join(shortened(doubts, most=3)) or "nothing confirms their waits: no stamp, and no second look"


def _decisive(snapshot: Snapshot, pessimistic: Reduction, missing: Bools) -> tuple[ProcessName, ...]:
    """The missing processes that the remainder waits for: only their reports can decide."""
    targets = pessimistic.targets[missing[pessimistic.targets]]
    return tuple(sorted({process_of(name) for name in snapshot.waits.named(np.unique(targets))}))
