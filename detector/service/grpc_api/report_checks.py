"""What an agent's messages may be: checked where its stream ends, in a detector or in a collector."""

from __future__ import annotations

import grpc

from detector.ops.text import cut
from stilltrue.model import ProcessId
from stilltrue.protocol.report import Report
from stilltrue.protocol.wire.values import MalformedError
from stilltrue.v1 import snapshot_pb2 as pb

REFUSAL_CHARACTERS_MAX = 500
"""A refusal may name what it refuses, which may be of any length."""


class RefusedError(Exception):
    """An agent's message is refused: the status for its stream, and a reason for the metrics."""

    def __init__(self, status: grpc.StatusCode, text: str, reason: str) -> None:
        super().__init__(text)
        self.status = status
        self.text = cut(text, REFUSAL_CHARACTERS_MAX)
        self.reason = reason


def check_bytes(data: bytes, most: int) -> None:
    """Refuse a message that is too large, before it is decoded."""
    if len(data) > most:
        text = f"a message of {len(data)} bytes; at most {most} are accepted (--report-bytes-max)"
        raise RefusedError(grpc.StatusCode.RESOURCE_EXHAUSTED, text, "oversized")


def check_entries(report: pb.Report, most: int) -> None:
    """Refuse a report that says too much."""
    entries = len(report.waits) + len(report.made) + len(report.served)
    if entries > most:
        text = f"a report of {entries} waits and calls; at most {most} are accepted (--report-entries-max)"
        raise RefusedError(grpc.StatusCode.RESOURCE_EXHAUSTED, text, "oversized")


def check_owner(report: Report, process: ProcessId) -> None:
    """Refuse a report on the stream of another process."""
    if report.process != process:
        raise MalformedError(f"process: a report of {report.process.instance} on the stream of {process.instance}")


def not_a_request() -> RefusedError:
    """The refusal of a message that cannot be decoded."""
    return RefusedError(grpc.StatusCode.INVALID_ARGUMENT, "the message is not a ConnectRequest", "malformed")
