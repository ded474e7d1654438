"""Encodes the reports of one session as differences from the previous report, and occasionally in full."""

from __future__ import annotations

from stilltrue.protocol.wire.difference import fields_of, pieces_of
from stilltrue.v1 import agent_pb2 as pb
from stilltrue.v1 import snapshot_pb2

WHOLE_EVERY = 60
"""One in this number of reports is sent in full, so that no error persists."""


class Differences:
    """The encoder of one session. Not thread-safe."""

    def __init__(self) -> None:
        self._body = b""
        self._base = 0
        self._since_whole = 0

    def request(self, report: snapshot_pb2.Report) -> pb.ConnectRequest:
        """The message to send for ``report``, whose heading fields are cleared."""
        difference = pb.Difference(snapshot=report.snapshot, after=report.after, cut_at=report.cut_at)
        for name in ("process", "snapshot", "after", "cut_at"):
            report.ClearField(name)
        body = report.SerializeToString(deterministic=True)
        if self._base and self._since_whole < WHOLE_EVERY - 1:
            self._since_whole += 1
            difference.base = self._base
            if body != self._body:
                difference.pieces.extend(pieces_of(fields_of(self._body), fields_of(body)))
        else:
            self._since_whole = 0
            difference.pieces.add(fields=body)
        self._body, self._base = body, difference.snapshot
        return pb.ConnectRequest(difference=difference)
