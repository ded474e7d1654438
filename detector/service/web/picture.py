"""The picture of a kept snapshot: which of its verdicts is shown in it, and the drawing."""

from __future__ import annotations

from collections.abc import Sequence

from detector.core.document.reader import parse_document
from detector.drawing.draw import Format, draw
from detector.service.detection.evaluator import undetermined
from stilltrue.model import Holds, Verdict
from stilltrue.protocol.wire.verdict import verdict_from_wire
from stilltrue.v1 import detector_pb2 as pb

_FIRST = ("deadlock", "gridlock")


def picture_of(answer: pb.GetSnapshotResponse, form: Format, predicate: str = "") -> str:
    """Who waits for whom, with the core of ``predicate``'s verdict (empty: of the one that has most to show) highlighted.

    It takes long for a large snapshot: not for the event loop.
    """
    _, snapshot = parse_document(answer.document_json, file=f"snapshot {answer.summary.ref.id}")
    verdict = shown([verdict_from_wire(verdict) for verdict in answer.verdicts], predicate)
    return draw(snapshot, verdict or undetermined("deadlock", snapshot.ref, "rejected", "the snapshot was rejected"), form)


def shown(verdicts: Sequence[Verdict], predicate: str = "") -> Verdict | None:
    """The verdict to show: one that holds before others, ``predicate``'s, or else deadlock's and gridlock's, before others."""

    def rank(verdict: Verdict) -> tuple[bool, bool, int, str]:
        place = _FIRST.index(verdict.predicate) if verdict.predicate in _FIRST else len(_FIRST)
        held = verdict.holds is Holds.TRUE and bool(verdict.core)
        return verdict.predicate != predicate, not held, place, verdict.predicate

    return min((verdict for verdict in verdicts if verdict.snapshot.scope == "all"), key=rank, default=None)
