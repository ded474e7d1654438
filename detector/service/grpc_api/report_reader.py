"""Reads an agent's reports; a report with the same content as the previous one is not decoded again.

A report begins with a heading (process, snapshot, after, cut_at) that differs each time. The local state follows, and is
mostly unchanged. If its bytes are equal to the last ones, the report shares the tuples of the previous one, so that later
stages see by identity that nothing has changed. A report that was sent as a difference is first restored to its full bytes. A
message with its fields in another order is decoded as usual.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass, replace

from stilltrue.model import SnapshotId
from stilltrue.protocol.report import LocalWait, OutstandingCall, Report, ServedCall
from stilltrue.protocol.stamp import NUMBER_MAX
from stilltrue.protocol.wire.difference import fields_of, patched
from stilltrue.protocol.wire.report import report_from_wire
from stilltrue.protocol.wire.values import TIME_MAX, MalformedError, checked_number, checked_time
from stilltrue.v1 import agent_pb2
from stilltrue.v1 import snapshot_pb2 as pb

_REPORT, _PROCESS, _SNAPSHOT, _AFTER, _CUT_AT = b"\x12\x0a\x10\x18\x21"
"""The tags of field 2 of a ``ConnectRequest``, and of the first four fields of a ``Report``."""
_MORE = 0x80
_VARINT_BYTES_MAX = 10
_DOUBLE = struct.Struct("<d")
_UNSET = (NUMBER_MAX + 1, NUMBER_MAX + 2, -1.0)
"""Placeholders for the heading while the rest is decoded, to check that the rest does not repeat these fields."""


@dataclass(frozen=True, slots=True)
class ReportBytes:
    """A report split into its heading, the bytes of its process, and the rest."""

    process: bytes
    snapshot: int
    after: int
    cut_at: float
    rest: bytes

    def process_id(self) -> pb.ProcessId:
        """Decode the process. Raises ``DecodeError``."""
        return pb.ProcessId.FromString(self.process)

    def message(self) -> pb.Report | None:
        """Decode the report; None if it must be decoded as a whole. Raises ``DecodeError``."""
        message = pb.Report(snapshot=_UNSET[0], after=_UNSET[1], cut_at=_UNSET[2])
        message.MergeFromString(self.rest)
        if message.HasField("process") or (message.snapshot, message.after, message.cut_at) != _UNSET:
            return None
        message.process.ParseFromString(self.process)
        message.snapshot, message.after, message.cut_at = self.snapshot, self.after, self.cut_at
        return message


def split(data: bytes) -> ReportBytes | None:
    """Split a ``ConnectRequest`` with a report; None for other messages, and for another order of fields."""
    try:
        if data[0] != _REPORT:
            return None
        length, at = _varint(data, 1)
        if at + length != len(data) or data[at] != _PROCESS:
            return None
        length, at = _varint(data, at + 1)
        process, at = data[at : at + length], at + length
        snapshot, at = _varint(data, at + 1) if data[at] == _SNAPSHOT else (0, at)
        after, at = _varint(data, at + 1) if data[at] == _AFTER else (0, at)
        if data[at] != _CUT_AT:
            return None
        (cut_at,) = _DOUBLE.unpack_from(data, at + 1)
    except (IndexError, ValueError, struct.error):
        return None
    return ReportBytes(process, snapshot, after, cut_at, data[at + 1 + _DOUBLE.size :])


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Read a varint; returns it and the offset after it."""
    number = 0
    for place in range(_VARINT_BYTES_MAX):
        byte = data[at + place]
        number |= (byte & ~_MORE) << 7 * place
        if byte < _MORE:
            return number, at + place + 1
    raise ValueError("a number is too long")


class ReportReader:
    """Reads the reports of one agent."""

    def __init__(self, own: bytes = b"") -> None:
        """``own``: the stream's process, encoded, which differences omit."""
        self._own = own
        self._process = self._rest = b""
        self._report: Report | None = None
        self._base = 0
        self._restored = b""
        """The report restored from the last difference (whose snapshot is ``_base``), accepted or not."""

    @property
    def restored_bytes(self) -> int:
        """The size of the report restored from the last difference."""
        return len(self._restored)

    def restored(self, difference: agent_pb2.Difference, bytes_max: int) -> ReportBytes:
        """Restore a report from a difference. Raises :class:`MalformedError`."""
        if difference.base != self._base and difference.base:
            raise MalformedError(f"difference.base: {difference.base}, but the last report was of {self._base}")
        if not difference.base:
            rest = patched((), difference.pieces, bytes_max)
        elif difference.pieces:
            rest = patched(fields_of(self._restored), difference.pieces, bytes_max)
        else:
            rest = self._restored
        self._base, self._restored = difference.snapshot, rest
        return ReportBytes(self._own, difference.snapshot, difference.after, difference.cut_at, rest)

    def again(self, found: ReportBytes) -> Report | None:
        """The report, if its content equals the last one's; None: decode it. Raises as :func:`report_from_wire`."""
        if self._report is None or found.rest != self._rest or found.process != self._process:
            return None
        if found.snapshot <= found.after:
            raise MalformedError(f"snapshot: {found.snapshot} is not above after ({found.after})")
        return replace(
            self._report,
            snapshot=SnapshotId(checked_number("snapshot", found.snapshot)),
            after=SnapshotId(found.after),
            cut_at=checked_time("cut_at", found.cut_at),
        )

    def decoded(self, message: pb.Report, found: ReportBytes | None) -> Report:
        """Convert a decoded message; ``found``: its bytes, to recognise equal ones. Raises as :func:`report_from_wire`."""
        self._report = None
        report = report_from_wire(message)
        if found is not None:
            self._process, self._rest, self._report = found.process, found.rest, report
        return report


def check_times(report: Report) -> None:
    """Refuse times outside the calendar, which could not be written to snapshot documents."""
    entries: tuple[LocalWait | OutstandingCall | ServedCall, ...] = (*report.waits, *report.made, *report.served)
    check_moments("cut_at", (report.cut_at,))
    check_moments("since", (entry.since for entry in entries))
    check_moments("deadline", (entry.deadline for entry in entries))


def check_moments(field: str, times: Iterable[float | None]) -> None:
    """Refuse times outside the calendar; ``field``: their name in the error."""
    for time in times:
        if time is not None and not 0 <= time < TIME_MAX:
            raise MalformedError(f"{field}: {time} is not a time between the years 1970 and 9999")
