"""A report that is not decoded again equals its decoded form."""

from __future__ import annotations

import random
from typing import Any

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st

from detector.service.grpc_api.report_reader import ReportBytes, ReportReader, split
from stilltrue.protocol.report import Report
from stilltrue.protocol.wire.report import report_from_wire
from stilltrue.protocol.wire.values import MalformedError
from stilltrue.v1 import agent_pb2
from stilltrue.v1 import snapshot_pb2 as pb


def message(snapshot: int, after: int = 0, cut_at: float = 10.0, *, waits: int = 3, happenings: int = 5) -> pb.Report:
    report = pb.Report(
        process=pb.ProcessId(service="shop", instance="a", incarnation=7), snapshot=snapshot, after=after, cut_at=cut_at,
        next_number=waits + 1, activity=pb.ACTIVITY_BLOCKED, happenings=happenings, labels={"zone": "b", "team": "x"},
    )  # fmt: skip
    for number in range(1, waits + 1):
        report.made.add(number=number, method="/S/M", party=f"a/{number}", servers={"b": 1})
        report.waits.add(waiter=f"a/{number}", number=number, among=[pb.Target(call=number)], needs=1)
    return report


def sent(report: pb.Report) -> bytes:
    return agent_pb2.ConnectRequest(report=report).SerializeToString()


def read(reader: ReportReader, data: bytes) -> Report:
    found = split(data)
    assert found is not None
    again = reader.again(found)
    if again is not None:
        return again
    decoded = found.message()
    if decoded is None:
        return reader.decoded(agent_pb2.ConnectRequest.FromString(data).report, None)
    return reader.decoded(decoded, found)


def parts(data: bytes) -> ReportBytes:
    found = split(data)
    assert found is not None
    return found


def test_the_same_local_state_is_the_same_objects() -> None:
    reader = ReportReader()
    first = read(reader, sent(message(1)))
    second = read(reader, sent(message(9, 1, 11.5)))
    assert (second.snapshot, second.after, second.cut_at) == (9, 1, 11.5)
    assert all(getattr(second, name) is getattr(first, name) for name in ("made", "served", "waits", "seen", "facts", "labels"))
    assert second == report_from_wire(message(9, 1, 11.5))


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(1, 10**6), st.booleans()), max_size=12))
def test_every_report_equals_its_decoded_form(steps: list[tuple[int, int, int, bool]]) -> None:
    reader = ReportReader()
    for waits, happenings, snapshot, from_zero in steps:
        report = message(snapshot, 0 if from_zero else snapshot - 1, snapshot / 7, waits=waits, happenings=happenings)
        assert read(reader, sent(report)) == report_from_wire(report)


@pytest.mark.parametrize("later", [{"snapshot": 3}, {"after": 2}, {"cut_at": 4.0}, {"process": {"incarnation": 9}}])
def test_a_repeated_heading_is_read_as_protobuf_reads_it(later: dict[str, Any]) -> None:
    """The last one counts: such a report is never taken from memory."""
    reader = ReportReader()
    for snapshot in (5, 6):
        report = message(snapshot, 1).SerializeToString() + pb.Report(**later).SerializeToString()
        data = b"\x12" + len(report).to_bytes(1, "big") if len(report) < 128 else b""
        data = data or bytes((0x12, len(report) & 0x7F | 0x80, len(report) >> 7))
        whole = agent_pb2.ConnectRequest.FromString(data + report).report
        found = parts(data + report)
        assert found.message() is None
        assert reader.again(found) is None
        assert read(reader, data + report) == report_from_wire(whole)


@pytest.mark.parametrize(("snapshot", "after"), [(1, 1), (0, 0), (2**53 + 5, 1)])
def test_an_invalid_heading_is_refused_as_when_decoded(snapshot: int, after: int) -> None:
    reader = ReportReader()
    read(reader, sent(message(4)))
    with pytest.raises(MalformedError, match="snapshot") as refused:
        reader.again(parts(sent(message(snapshot, after))))
    with pytest.raises(MalformedError) as decoded:
        report_from_wire(message(snapshot, after))
    assert str(refused.value) == str(decoded.value)


def test_a_report_that_was_refused_is_not_remembered() -> None:
    reader = ReportReader()
    bad = message(4)
    bad.waits[0].needs = 9
    for snapshot in (4, 5):
        bad.snapshot = snapshot
        with pytest.raises(MalformedError):
            read(reader, sent(bad))


def test_other_messages_and_torn_ones_are_left_to_protobuf() -> None:
    data = sent(message(4, 2))
    assert split(agent_pb2.ConnectRequest(lease=agent_pb2.Lease(colour=4)).SerializeToString()) is None
    assert split(b"") is None
    for cut in range(1, len(data)):
        assert split(data[:cut]) is None
    random.seed(4)
    for _ in range(2000):
        torn = bytearray(data)
        torn[random.randrange(len(torn))] = random.randrange(256)
        found = split(bytes(torn))
        if found is None:
            continue
        try:
            message_of_parts = found.message()
        except DecodeError:
            with pytest.raises(DecodeError):
                agent_pb2.ConnectRequest.FromString(bytes(torn))
        else:
            whole = agent_pb2.ConnectRequest.FromString(bytes(torn)).report
            assert message_of_parts is None or message_of_parts == whole
