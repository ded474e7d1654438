"""The picture of a snapshot for a page."""

from __future__ import annotations

from stilltrue.v1 import detector_pb2 as pb


def svg_of(answer: pb.GetSnapshotResponse, predicate: str) -> str:
    """Who waits for whom, with the core of ``predicate``'s verdict highlighted."""
    return ""
