"""Who goes on again once some parties are aborted: the reduction of a stored snapshot, continued with them free."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from detector.core.document.reader import parse_document
from detector.predicates.deadlock import stuck_bounds
from stilltrue.model import PartyName
from stilltrue.v1 import detector_pb2 as pb


def freed_by(answer: pb.GetSnapshotResponse, victims: Collection[PartyName]) -> tuple[PartyName, ...]:
    """The stuck parties of a snapshot that aborting ``victims`` frees, but for those; slow for a large snapshot."""
    _, snapshot = parse_document(answer.document_json, file=f"snapshot {answer.summary.ref.id}")
    waits = snapshot.waits
    before = stuck_bounds(snapshot).certain
    released = np.fromiter((name in victims for name in waits.names), np.bool_, len(waits.names))
    after = before.further(released=released)
    return tuple(name for name in waits.named(np.flatnonzero(after.free & ~before.free)) if name not in victims)
