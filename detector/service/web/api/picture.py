"""Draws a stored snapshot and highlights one of its verdicts."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from detector.core.document.reader import parse_document
from detector.core.undetermined import undetermined
from detector.drawing.draw import Format, draw
from detector.predicates.evidence.core_components import narrowed
from stilltrue.model import Holds, PartyName, Verdict
from stilltrue.protocol.wire.verdict import verdict_from_wire
from stilltrue.v1 import detector_pb2 as pb

_FIRST = ("deadlock", "gridlock")


def picture_of(answer: pb.GetSnapshotResponse, form: Format, predicate: str = "", core: Collection[PartyName] = ()) -> str:
    """Draw the wait-for graph, highlighting the core of the verdict of ``predicate`` (empty: of the most relevant one).

    ``core``: as for :func:`~detector.service.web.api.graph.graph_of`.

    Slow for a large snapshot: do not call it on the event loop.
    """
    _, snapshot = parse_document(answer.document_json, file=f"snapshot {answer.summary.ref.id}")
    verdict = verdict_to_show([verdict_from_wire(verdict) for verdict in answer.verdicts], predicate)
    verdict = None if verdict is None else narrowed(verdict, snapshot, core)
    return draw(snapshot, verdict or undetermined("deadlock", snapshot.ref, "rejected", "the snapshot was rejected"), form)


def verdict_to_show(verdicts: Sequence[Verdict], predicate: str = "") -> Verdict | None:
    """Choose the verdict to show: that of ``predicate``, else one that holds, else that of deadlock or gridlock."""

    def rank(verdict: Verdict) -> tuple[bool, bool, int, str]:
        place = _FIRST.index(verdict.predicate) if verdict.predicate in _FIRST else len(_FIRST)
        held = verdict.holds is Holds.TRUE and bool(verdict.core)
        return verdict.predicate != predicate, not held, place, verdict.predicate

    return min((verdict for verdict in verdicts if verdict.snapshot.scope == "all"), key=rank, default=None)
