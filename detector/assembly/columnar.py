"""Assembles a snapshot from its records as columns, if the result is the same as from objects.

Rules:

1. The result is the same snapshot as that of :func:`~detector.assembly.evaluation.assembled`, or None. Tests compare the two.
2. It is None for a small fleet, where columns do not pay off; for malformed reports; for two incarnations of one member; if
   calls are tied to connections that are held up; and in the cases of :mod:`detector.core.waits.columnar`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from google.protobuf.message import DecodeError

from detector.assembly.records import Header
from detector.assembly.report_columns import columns_of_reports
from detector.core.protocol.assembler import Assembled, Outcome
from detector.core.protocol.clock_offsets import in_detector_time
from detector.core.snapshot import Snapshot
from detector.core.waits.columnar import ROWS_SHARE_MAX, resolved_as_columns
from stilltrue.model import ProcessId, ProcessName, SnapshotRef
from stilltrue.protocol.report import Report
from stilltrue.protocol.wire.report import report_from_wire
from stilltrue.protocol.wire.values import MalformedError, process_from_wire
from stilltrue.v1 import agent_pb2
from stilltrue.v1 import snapshot_pb2 as pb

MEMBERS_MIN = 200


def assembled_as_columns(
    header: Header, records: Iterable[bytes], members_min: int = MEMBERS_MIN, rows_share_max: float = ROWS_SHARE_MAX
) -> Assembled | None:
    """The snapshot of a header and its records, without the reports; None if rule 2 applies."""
    absent = [member.process for member in header.absent]
    members = {process.instance: process for process in (*header.reported, *absent)}
    if len(members) < max(members_min, len(header.reported) + len(absent)):
        return None
    try:
        reports = _by_process(records, frozenset(header.reported))
        if any(each.sent_over for each in reports.values()) and any(each.held_up for each in reports.values()):
            return None
        return _assembled(header, members, reports, rows_share_max)
    except (MalformedError, DecodeError):
        return None


def _by_process(records: Iterable[bytes], counted: frozenset[ProcessId]) -> dict[ProcessName, pb.Report]:
    """The first report of each process in ``counted``."""
    found: dict[ProcessName, pb.Report] = {}
    for record in records:
        message = agent_pb2.ConnectRequest.FromString(record[1:]).report
        process = process_from_wire(message.process)
        if process in counted:
            found.setdefault(process.instance, message)
    return found


def _assembled(
    header: Header, members: Mapping[ProcessName, ProcessId], reports: Mapping[ProcessName, pb.Report], rows_share_max: float
) -> Assembled | None:
    names = sorted(reports)
    absent = tuple(members[name] for name in sorted(members.keys() - reports.keys()))
    columns = columns_of_reports(
        [reports[name] for name in names], [process.instance for process in absent], header.begun, header.ended
    )

    def decode(positions: Sequence[int]) -> dict[ProcessName, Report]:
        made = (report_from_wire(reports[names[at]]) for at in positions)
        return {each.process.instance: in_detector_time(each, header.begun, header.ended) for each in made}

    found = resolved_as_columns(columns, decode, absent, rows_share_max)
    if found is None:
        return None
    ref = SnapshotRef(id=header.snapshot, begun=header.begun, ended=header.ended, members=len(members))
    snapshot = Snapshot(
        ref=ref,
        processes={process.instance: state for process, state in zip(columns.processes, columns.states, strict=True)},
        waits=found.waits,
        in_transit=found.in_transit,
        missing=tuple(process.instance for process in absent),
        forgetful=found.forgetful,
    )
    return Assembled(
        snapshot=snapshot,
        outcome=Outcome.INCOMPLETE if absent else Outcome.COMPLETE,
        begun_by=header.begun_by,
        reports={},
        settled=found.settled,
        absent=absent,
    )
