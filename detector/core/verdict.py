"""Writes a verdict as JSON: first the keys fixed by docs/design.md section 8, in their order, then the others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

from detector.core.times import write_time
from stilltrue.model import Coverage, Evidence, Holds, SnapshotRef, Verdict, Witness

ANSWERS: dict[Holds, bool | None] = {Holds.TRUE: True, Holds.FALSE: False, Holds.UNDETERMINED: None}
FIXED_KEYS = ("predicate", "holds", "remainder", "core", "behind", "witness", "missing", "until", "snapshot")
_FIELDS = tuple(field.name for field in fields(Verdict))
KEYS = (*FIXED_KEYS, *(name for name in _FIELDS if name not in FIXED_KEYS))
"""Every field of a verdict: the fixed ones first."""


def write_verdict(verdict: Verdict) -> dict[str, Any]:
    """The verdict as a JSON object, with a key for each of ``KEYS``."""
    return {key: _written(getattr(verdict, key), _WRITERS.get(key)) for key in KEYS}


def write_ref(ref: SnapshotRef) -> dict[str, Any]:
    """A snapshot reference as a JSON object; unknown values are null."""
    return {field.name: _written(getattr(ref, field.name), _WRITERS.get(field.name)) for field in fields(SnapshotRef)}


def _written(value: Any, write: Callable[[Any], Any] | None) -> Any:
    if isinstance(value, tuple) and write is None:
        return list(value)
    return value if value is None or write is None else write(value)


def _write_witness(witness: Witness) -> dict[str, Any]:
    return {"kind": witness.kind, "parties": list(witness.parties), "text": witness.text}


def _write_coverage(coverage: Coverage) -> dict[str, Any]:
    return {
        "members": coverage.members,
        "expected": coverage.expected,
        "blind": [{"process": spot.process, "reasons": list(spot.reasons)} for spot in coverage.blind],
        "partly": [{"process": spot.process, "reasons": list(spot.reasons)} for spot in coverage.partly],
    }


def _write_evidence(evidence: tuple[Evidence, ...]) -> list[dict[str, Any]]:
    return [{"party": one.party, "stack": list(one.stack), "trace": one.trace} for one in evidence]


_WRITERS: dict[str, Callable[[Any], Any]] = {
    "evidence": _write_evidence,
    "holds": ANSWERS.__getitem__,
    "witness": _write_witness,
    "coverage": _write_coverage,
    "snapshot": write_ref,
    "until": write_time,
    "begun": write_time,
    "ended": write_time,
}
