"""Checks of an agent's messages, made where its stream ends: in the detector or in a collector."""

from __future__ import annotations

import grpc
from google.protobuf.message import Message

from detector.ops.printable_text import cut
from detector.service.grpc_api.message_weight import FIELDS_PER_ENTRY, too_heavy
from stilltrue.model import ProcessId
from stilltrue.protocol.report import Report
from stilltrue.protocol.wire.values import MalformedError
from stilltrue.v1 import snapshot_pb2 as pb

REFUSAL_CHARACTERS_MAX = 500
"""A refusal may quote the refused value, which may have any length."""


class RefusedError(Exception):
    """An agent's message is refused; has the status for its stream, and a reason for the metrics."""

    def __init__(self, status: grpc.StatusCode, text: str, reason: str) -> None:
        super().__init__(text)
        self.status = status
        self.text = cut(text, REFUSAL_CHARACTERS_MAX)
        self.reason = reason


def check_bytes(data: bytes, most: int) -> None:
    """Refuse a message that is too large, before it is decoded."""
    if len(data) > most:
        text = f"the message has {len(data)} bytes; at most {most} are accepted (--report-bytes-max)"
        raise RefusedError(grpc.StatusCode.RESOURCE_EXHAUSTED, text, "oversized")


def check_weight(data: bytes, message: type[Message], entries_max: int) -> None:
    """Refuse a message, before it is decoded, that has more fields than ``entries_max`` entries can have."""
    if too_heavy(data, message, FIELDS_PER_ENTRY * entries_max):
        text = f"the message has more than {FIELDS_PER_ENTRY * entries_max} fields, the maximum for {entries_max} entries"
        raise RefusedError(grpc.StatusCode.RESOURCE_EXHAUSTED, f"{text} (--report-entries-max)", "oversized")


def check_share(fits: bool, most: int, what: str) -> None:
    """Refuse a report that does not fit its share of a total; ``what``: the total's unit and flag."""
    if not fits:
        text = f"the reports of all members may have {most} {what} together, and this one has more than its share"
        raise RefusedError(grpc.StatusCode.RESOURCE_EXHAUSTED, text, "oversized_together")


def entries_of(report: pb.Report) -> int:
    """The number of entries in a report."""
    calls = len(report.waits) + len(report.made) + len(report.served)
    return calls + len(report.pools) + len(report.holds) + len(report.sent_over) + len(report.held_up)


def check_entries(report: pb.Report, most: int) -> None:
    """Refuse a report with too many entries."""
    calls = len(report.waits) + len(report.made) + len(report.served)
    others = len(report.pools) + len(report.holds) + len(report.sent_over) + len(report.held_up)
    if calls + others > most:
        text = f"the report has {calls} waits and calls and {others} pools, shares and connections"
        text = f"{text}; at most {most} are accepted (--report-entries-max)"
        raise RefusedError(grpc.StatusCode.RESOURCE_EXHAUSTED, text, "oversized")


def check_owner(report: Report, process: ProcessId) -> None:
    """Refuse a report about another process than the stream's."""
    if report.process != process:
        raise MalformedError(f"process: a report of {report.process.instance} on the stream of {process.instance}")


def not_a_request() -> RefusedError:
    """The refusal for a message that cannot be decoded."""
    return RefusedError(grpc.StatusCode.INVALID_ARGUMENT, "the message is not a ConnectRequest", "malformed")
