"""A finished snapshot with its verdicts, as it is stored and shown."""

from __future__ import annotations

import json

from detector.core.assembler import Assembled
from detector.core.document.reader import write_document
from stilltrue.model import Verdict
from stilltrue.protocol.wire.verdict import snapshot_to_wire, verdict_to_wire
from stilltrue.v1 import detector_pb2 as pb


class JudgedSnapshot:
    """One snapshot with its verdicts; the document is made on first use, by any thread."""

    def __init__(self, assembled: Assembled, verdicts: tuple[Verdict, ...], *, pinned: bool) -> None:
        """``pinned``: it is kept in full because an incident or a changed verdict refers to it."""
        self._assembled = assembled
        self.pinned = pinned
        self.done = False
        """Whether it has been written, or will never be."""
        self.on_disk = False
        self.verdicts = [verdict_to_wire(verdict) for verdict in verdicts]
        self.summary = _summary(assembled, verdicts)

    def document(self) -> str:
        """The snapshot document, as JSON."""
        return json.dumps(write_document(self._assembled.snapshot), separators=(",", ":"))

    def answer(self) -> pb.GetSnapshotResponse:
        """The answer to a request for this snapshot."""
        return pb.GetSnapshotResponse(summary=self.summary, document_json=self.document(), verdicts=self.verdicts)


def _summary(assembled: Assembled, verdicts: tuple[Verdict, ...]) -> pb.SnapshotSummary:
    summary = pb.SnapshotSummary(
        ref=snapshot_to_wire(assembled.snapshot.ref),
        outcome=assembled.outcome.value,
        begun_by=assembled.begun_by,
        missing=assembled.snapshot.missing,
        kept=True,
    )
    for verdict in verdicts:
        scope = verdict.snapshot.scope
        name = verdict.predicate if scope == "all" else f"{verdict.predicate}@{scope}"
        summary.verdicts[name] = verdict_to_wire(verdict).holds
    return summary
