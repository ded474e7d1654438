"""A finished snapshot with its verdicts, as it is stored and shown."""

from __future__ import annotations

import contextlib
import threading

from detector.core.protocol.assembler import Assembled
from detector.core.snapshot import Snapshot
from detector.service.storage.packed_documents import PackedDocuments, unpacked
from stilltrue.model import Verdict
from stilltrue.protocol.wire.verdict import snapshot_to_wire, verdict_to_wire
from stilltrue.v1 import detector_pb2 as pb


class JudgedSnapshot:
    """One snapshot with its verdicts; the document is made on first use, by any thread, and takes the snapshot's place."""

    def __init__(
        self, assembled: Assembled, verdicts: tuple[Verdict, ...], *, pinned: bool, documents: PackedDocuments
    ) -> None:
        """``pinned``: it is kept in full because an incident or a changed verdict refers to it. ``documents``: makes them."""
        self._documents = documents
        self._making = threading.Lock()
        self._document: Snapshot | bytes = assembled.snapshot
        self.pinned = pinned
        self.done = False
        """Whether it has been written, or will never be."""
        self.on_disk = False
        self.verdicts = [verdict_to_wire(verdict) for verdict in verdicts]
        self.summary = _summary(assembled, verdicts)

    def document(self) -> bytes:
        """The snapshot document, packed."""
        with self._making:
            if isinstance(self._document, Snapshot):
                self._document = self._documents.pack(self._document)
            return self._document

    def prepare(self) -> None:
        """Make the document, so that it is there when the store is locked; what cannot be packed is refused there."""
        with contextlib.suppress(ValueError, OverflowError):
            self.document()

    def answer(self) -> pb.GetSnapshotResponse:
        """The answer to a request for this snapshot."""
        return pb.GetSnapshotResponse(summary=self.summary, document_json=unpacked(self.document()), verdicts=self.verdicts)


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
