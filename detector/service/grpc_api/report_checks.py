"""What an agent's messages may be: checked where its stream ends, in a detector or in a collector."""

from __future__ import annotations

import grpc
from google.protobuf.message import Message

from detector.ops.text import cut
from detector.service.grpc_api.message_weight import FIELDS_PER_ENTRY, too_heavy
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


def check_weight(data: bytes, message: type[Message], entries_max: int) -> None:
    """Refuse a message that says more than so many entries can, before it is decoded; ``message``: what it is."""
    if too_heavy(data, message, FIELDS_PER_ENTRY * entries_max):
        text = f"a message of more than {FIELDS_PER_ENTRY * entries_max} fields, as much as {entries_max} entries may have"
        raise RefusedError(grpc.StatusCode.RESOURCE_EXHAUSTED, f"{text} (--report-entries-max)", "oversized")


def check_share(fits: bool, most: int, what: str) -> None:
    """Refuse a report that leaves the others too little; ``what``: of which bound, with its flag."""
    if not fits:
        text = f"the reports of all members may have {most} {what}, and this one has more than its share of it"
        raise RefusedError(grpc.StatusCode.RESOURCE_EXHAUSTED, text, "oversized_together")


def entries_of(report: pb.Report) -> int:
    """How much a report says."""
    calls = len(report.waits) + len(report.made) + len(report.served)
    return calls + len(report.pools) + len(report.holds) + len(report.sent_over) + len(report.held_up)


def check_entries(report: pb.Report, most: int) -> None:
    """Refuse a report that says too much."""
    calls = len(report.waits) + len(report.made) + len(report.served)
    others = len(report.pools) + len(report.holds) + len(report.sent_over) + len(report.held_up)
    if calls + others > most:
        text = f"a report of {calls} waits and calls and {others} pools, shares and connections"
        text = f"{text}; at most {most} are accepted (--report-entries-max)"
        raise RefusedError(grpc.StatusCode.RESOURCE_EXHAUSTED, text, "oversized")


def check_owner(report: Report, process: ProcessId) -> None:
    """Refuse a report on the stream of another process."""
    if report.process != process:
        raise MalformedError(f"process: a report of {report.process.instance} on the stream of {process.instance}")


def not_a_request() -> RefusedError:
    """The refusal of a message that cannot be decoded."""
    return RefusedError(grpc.StatusCode.INVALID_ARGUMENT, "the message is not a ConnectRequest", "malformed")
