"""Checks one agent's reports, and splits each into the record for Kafka and a digest for the coordinator.

Rules:

1. A report is checked as in a detector, so every record in Kafka can be decoded and belongs to the process whose stream it came
   from.
2. It is written once for each snapshot that it may serve: those in (after, snapshot], limited to the newest ones that can be
   pending. The digest names the same snapshots, so that the coordinator counts it for no others.
3. The digest has what coverage and scopes need: pools of unknown size, calls from outside, the number of dropped reports,
   labels and party names. Its waits are not real and are never resolved.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from google.protobuf.message import DecodeError

from detector.service.grpc_api.report_checks import (
    check_bytes,
    check_entries,
    check_owner,
    check_weight,
    not_a_request,
)
from detector.service.grpc_api.report_reader import ReportReader, check_moments, check_times, split
from stilltrue.model import CallNumber, ProcessId, SnapshotId, WaitNumber
from stilltrue.protocol.report import LocalWait, PartyTarget, Report, ServedCall
from stilltrue.protocol.wire.report import report_to_wire
from stilltrue.protocol.wire.values import MalformedError, process_from_wire
from stilltrue.v1 import agent_pb2 as pb
from stilltrue.v1 import snapshot_pb2 as snapshot_pb


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """An accepted report: the snapshots to write it for, and its digest as a ``ConnectRequest``."""

    snapshots: tuple[int, ...]
    digest: bytes


class Intake:
    """Checks the messages of one agent."""

    def __init__(self, *, report_bytes_max: int, report_entries_max: int, pending_snapshots_max: int) -> None:
        """The bounds of a report, and the most snapshots that can be pending."""
        self._bytes_max = report_bytes_max
        self._entries_max = report_entries_max
        self._pending_max = pending_snapshots_max
        self._reader = ReportReader()
        self._process: ProcessId | None = None
        self._last: tuple[Report, snapshot_pb.Report] | None = None
        self.admitted = False
        """Whether the coordinator has welcomed the agent; until then its reports are dropped."""

    def report(self, data: bytes) -> Taken | None:
        """Check a message; return None if it is not a report, but another message for the coordinator.

        Raises :class:`RefusedError` or ``MalformedError``.
        """
        check_bytes(data, self._bytes_max)
        report = self._decoded(data)
        if report is None:
            return None
        if self._process is not None:
            check_owner(report, self._process)
        after = max(report.after, report.snapshot - self._pending_max)
        return Taken(snapshots=tuple(range(after + 1, report.snapshot + 1)), digest=self._digest(report, after))

    def _decoded(self, data: bytes) -> Report | None:
        found = split(data)
        try:
            if found is not None and (again := self._reader.again(found)) is not None:
                check_moments("cut_at", (again.cut_at,))
                return again
            check_weight(data, pb.ConnectRequest, self._entries_max)
            message = None if found is None else found.message()
            if message is None:
                request = pb.ConnectRequest.FromString(data)
                kind = request.WhichOneof("message")
                if kind == "hello":
                    self._process = process_from_wire(request.hello.process)
                elif kind == "difference":  # the welcome does not offer it, since only the coordinator could apply it
                    raise MalformedError("difference: a collector accepts only complete reports")
                if kind != "report":
                    return None
                message, found = request.report, None
        except DecodeError:
            raise not_a_request() from None
        check_entries(message, self._entries_max)
        report = self._reader.decoded(message, found)
        check_times(report)
        return report

    def _digest(self, report: Report, after: int) -> bytes:
        """Return the digest (rule 3); reuse the last one if nothing in it has changed."""
        last = self._last
        if last is None or not _same_digest(last[0], report):
            last = self._last = report, report_to_wire(digest_of(report))
        message = snapshot_pb.Report()
        message.CopyFrom(last[1])
        message.snapshot, message.after, message.cut_at = report.snapshot, after, report.cut_at
        return pb.ConnectRequest(report=message).SerializeToString()


def _same_digest(one: Report, other: Report) -> bool:
    same = one.served is other.served and one.waits is other.waits and one.pools is other.pools
    return same and one.lost == other.lost and one.labels == other.labels


def digest_of(report: Report) -> Report:
    """Reduce a report to its digest (rule 3)."""
    return Report(
        process=report.process,
        snapshot=SnapshotId(report.snapshot),
        after=report.after,
        cut_at=report.cut_at,
        served=tuple(ServedCall(party=served.party, method="") for served in report.served if served.caller is None),
        waits=tuple(_parties(report)),
        pools=tuple(replace(pool, queued=0) for pool in report.pools if pool.size is None),
        labels=report.labels,
        lost=report.lost,
        next_number=CallNumber(0),
    )


def _parties(report: Report) -> Iterator[LocalWait]:
    """Yield the parties that wait or serve, each as a wait for itself."""
    outside = {served.party for served in report.served if served.caller is None}
    named = dict.fromkeys((*(served.party for served in report.served), *(wait.waiter for wait in report.waits)))
    for number, party in enumerate(party for party in named if party not in outside):
        yield LocalWait(waiter=party, number=WaitNumber(number), among=(PartyTarget(party=party),))
