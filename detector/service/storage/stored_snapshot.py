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


class StoredSnapshot:
    """One snapshot with its verdicts. Its document is built on first use, on any thread, and replaces the snapshot."""

    def __init__(
        self, assembled: Assembled, verdicts: tuple[Verdict, ...], *, pinned: bool, documents: PackedDocuments
    ) -> None:
        """``pinned``: kept in full because an incident or a changed verdict refers to it. ``documents``: builds documents."""
        self._documents = documents
        self._making = threading.Lock()
        self._document: Snapshot | bytes = assembled.snapshot
        self.pinned = pinned
        self.done = False
        """Whether it has been written or given up."""
        self.on_disk = False
        self.verdicts = [verdict_to_wire(verdict) for verdict in verdicts]
        self.summary = _summary(assembled, verdicts)

    def document(self) -> bytes:
        """The packed snapshot document."""
        with self._making:
            if isinstance(self._document, Snapshot):
                self._document = self._documents.pack(self._document)
            return self._document

    def prepare(self) -> None:
        """Build the document before the store is locked; an error is raised when the document is used."""
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
