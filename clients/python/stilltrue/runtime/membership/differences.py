"""The reports of one session as they are sent: by what has changed since the one before, and now and then whole."""

from __future__ import annotations

from stilltrue.protocol.wire.difference import fields_of, pieces_of
from stilltrue.v1 import agent_pb2 as pb
from stilltrue.v1 import snapshot_pb2

WHOLE_EVERY = 60
"""One report in this many is sent whole, so that no mistake lasts."""


class Differences:
    """Not for several threads at once."""

    def __init__(self) -> None:
        self._body = b""
        self._base = 0
        self._since_whole = 0

    def request(self, report: snapshot_pb2.Report) -> pb.ConnectRequest:
        """What to send for ``report``, which is used up: its heading goes apart."""
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
