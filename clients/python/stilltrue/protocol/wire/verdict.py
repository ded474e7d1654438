"""Converts verdicts to protobuf and back."""

from __future__ import annotations

from collections.abc import Iterable

from stilltrue.model import (
    BlindSpot,
    Coverage,
    Evidence,
    Holds,
    PartyName,
    ProcessName,
    SnapshotId,
    SnapshotRef,
    Verdict,
    Witness,
)
from stilltrue.protocol.wire.values import checked_time
from stilltrue.v1 import snapshot_pb2 as pb

_HOLDS_TO_WIRE = {
    Holds.TRUE: pb.HOLDS_TRUE,
    Holds.FALSE: pb.HOLDS_FALSE,
    Holds.UNDETERMINED: pb.HOLDS_UNDETERMINED,
}
_HOLDS_FROM_WIRE = {number: holds for holds, number in _HOLDS_TO_WIRE.items()}


def verdict_to_wire(verdict: Verdict) -> pb.Verdict:
    """Convert a verdict."""
    return pb.Verdict(
        predicate=verdict.predicate,
        holds=_HOLDS_TO_WIRE[verdict.holds],
        witness=pb.Witness(kind=verdict.witness.kind, parties=verdict.witness.parties, text=verdict.witness.text),
        snapshot=snapshot_to_wire(verdict.snapshot),
        remainder=verdict.remainder,
        core=verdict.core,
        behind=verdict.behind,
        missing=verdict.missing,
        decisive=verdict.decisive,
        until=verdict.until,
        explanation=verdict.explanation,
        victims=verdict.victims,
        evidence=(pb.Evidence(party=e.party, stack=e.stack, trace=e.trace) for e in verdict.evidence),
        assumptions=verdict.assumptions,
        coverage=None if verdict.coverage is None else _coverage_to_wire(verdict.coverage),
    )


def verdict_from_wire(message: pb.Verdict) -> Verdict:
    """Convert a verdict back; an unknown answer counts as undetermined."""
    return Verdict(
        predicate=message.predicate,
        holds=_HOLDS_FROM_WIRE.get(message.holds, Holds.UNDETERMINED),
        witness=Witness(kind=message.witness.kind, parties=_parties(message.witness.parties), text=message.witness.text),
        snapshot=snapshot_from_wire(message.snapshot),
        remainder=_parties(message.remainder),
        core=_parties(message.core),
        behind=_parties(message.behind),
        missing=tuple(map(ProcessName, message.missing)),
        decisive=tuple(map(ProcessName, message.decisive)),
        until=checked_time("until", message.until) if message.HasField("until") else None,
        explanation=tuple(message.explanation),
        victims=_parties(message.victims),
        evidence=tuple(Evidence(party=PartyName(e.party), stack=tuple(e.stack), trace=e.trace) for e in message.evidence),
        assumptions=tuple(message.assumptions),
        coverage=_coverage_from_wire(message.coverage) if message.HasField("coverage") else None,
    )


def _coverage_to_wire(coverage: Coverage) -> pb.Coverage:
    def spots(blind: tuple[BlindSpot, ...]) -> list[pb.BlindSpot]:
        return [pb.BlindSpot(process=spot.process, reasons=spot.reasons) for spot in blind]

    return pb.Coverage(
        members=coverage.members,
        expected=coverage.expected,
        blind=spots(coverage.blind),
        partly=spots(coverage.partly),
    )


def _coverage_from_wire(message: pb.Coverage) -> Coverage:
    def spots(blind: Iterable[pb.BlindSpot]) -> tuple[BlindSpot, ...]:
        return tuple(BlindSpot(process=ProcessName(spot.process), reasons=tuple(spot.reasons)) for spot in blind)

    return Coverage(
        members=message.members, expected=message.expected, blind=spots(message.blind), partly=spots(message.partly)
    )


def snapshot_to_wire(ref: SnapshotRef) -> pb.SnapshotRef:
    """Convert the reference to a verdict's snapshot."""
    return pb.SnapshotRef(id=ref.id, scope=ref.scope, begun=ref.begun, ended=ref.ended, members=ref.members)


def snapshot_from_wire(message: pb.SnapshotRef) -> SnapshotRef:
    """Convert the reference to a verdict's snapshot back."""
    return SnapshotRef(
        id=SnapshotId(message.id) if message.HasField("id") else None,
        scope=message.scope,
        begun=message.begun if message.HasField("begun") else None,
        ended=message.ended if message.HasField("ended") else None,
        members=message.members,
    )


def _parties(names: Iterable[str]) -> tuple[PartyName, ...]:
    return tuple(map(PartyName, names))
