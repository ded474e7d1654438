"""A verdict as JSON: the fixed keys first and in their order, then the additional ones."""

from __future__ import annotations

from typing import Any

from detector.core.times import write_time
from stilltrue.model import Holds, SnapshotRef, Verdict

ANSWERS: dict[Holds, bool | None] = {Holds.TRUE: True, Holds.FALSE: False, Holds.UNDETERMINED: None}


def write_verdict(verdict: Verdict) -> dict[str, Any]:
    """The verdict as DESIGN.md section 8 fixes it; ``decisive``, ``explanation`` and ``victims`` follow."""
    return {
        "predicate": verdict.predicate,
        "holds": ANSWERS[verdict.holds],
        "remainder": list(verdict.remainder),
        "core": list(verdict.core),
        "behind": list(verdict.behind),
        "witness": {
            "kind": verdict.witness.kind,
            "parties": list(verdict.witness.parties),
            "text": verdict.witness.text,
        },
        "missing": list(verdict.missing),
        "until": None if verdict.until is None else write_time(verdict.until),
        "snapshot": write_ref(verdict.snapshot),
        "decisive": list(verdict.decisive),
        "explanation": list(verdict.explanation),
        "victims": list(verdict.victims),
    }


def write_ref(ref: SnapshotRef) -> dict[str, Any]:
    """Which snapshot the verdict is about; what is not known is null."""
    return {
        "id": ref.id,
        "scope": ref.scope,
        "begun": None if ref.begun is None else write_time(ref.begun),
        "ended": None if ref.ended is None else write_time(ref.ended),
        "members": ref.members,
    }
