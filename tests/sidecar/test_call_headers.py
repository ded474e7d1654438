"""Stamps in headers: only ours, from one sender; unstamped callers and upstreams learn nothing."""

from __future__ import annotations

from typing import Any

import pytest

from detector.service.grpc_api.report_reader import check_times
from detector.sidecar.call_headers import Inbound, Outbound
from detector.sidecar.http2.hpack import Headers
from detector.sidecar.tracking.observer import TrackedCall
from detector.sidecar.tracking.program import Program
from stilltrue.model import CallNumber, ProcessId, ProcessName, SnapshotId
from stilltrue.protocol.books.ledger import ChannelRecord
from stilltrue.protocol.recorder import Recorder
from stilltrue.protocol.stamp import Stamp, encode
from stilltrue.protocol.wire.report import report_from_wire, report_to_wire
from stilltrue.runtime.locked_recorder import LockedRecorder

REQUEST: Headers = [(b":path", b"/s/Place"), (b"content-type", b"application/grpc")]
TRAILERS: Headers = [(b"grpc-status", b"0")]
STAMP = (b"stilltrue-stamp", b"web;1;7;0;7")
OTHER = (b"stilltrue-stamp", b"bank;1;8;0;8")
PARTY = b"stilltrue-party"


@pytest.fixture
def program() -> Program:
    process = ProcessId(service="orders", instance=ProcessName("orders"), incarnation=1)
    live = LockedRecorder(lambda: Recorder(process=process), clock=lambda: 1000.0)
    return Program(live, later=lambda _seconds, _do: None, warn=lambda _text: None)


def _opened(program: Program, *more: tuple[bytes, bytes]) -> tuple[Headers, TrackedCall]:
    headers, call = Inbound(program, tells_party=True).opened([*REQUEST, *more], None)
    assert call is not None
    return headers, call


def _served(program: Program) -> Any:
    report = program.live.marked(SnapshotId(1))
    assert report is not None
    (call,) = report.served
    return call


def test_a_stamped_request_is_attributed_and_the_reply_carries_our_stamp(program: Program) -> None:
    headers, call = _opened(program, STAMP)
    assert STAMP not in headers
    assert _served(program).caller.process == "web"
    ((_, stamp),) = [pair for pair in call.trailers(TRAILERS, None) if pair not in TRAILERS]
    assert stamp.startswith(b"orders;1;7;")


def test_several_stamps_make_the_caller_unknown_and_are_counted(program: Program) -> None:
    headers, call = _opened(program, STAMP, OTHER)
    assert not {STAMP, OTHER} & set(headers)
    assert _served(program).caller is None
    assert call.trailers(TRAILERS, None) == TRAILERS
    assert program.live.stamps_refused == 1


@pytest.mark.parametrize("stamps", [[], [STAMP, OTHER], [(b"stilltrue-stamp", b"nonsense")]])
def test_callers_without_a_stamp_learn_nothing_even_from_echoed_headers(program: Program, stamps: Headers) -> None:
    headers, call = _opened(program, *stamps)
    echoed = [pair for pair in headers if pair[0] == PARTY] + [OTHER]
    assert len(echoed) == 2
    assert Inbound(program, tells_party=True).stripped([(b":status", b"200"), *echoed]) == [(b":status", b"200")]
    assert call.trailers([*TRAILERS, *echoed], None) == TRAILERS


def test_a_forwarded_stamp_is_replaced_by_our_own(program: Program) -> None:
    headers, _ = Outbound(program, ChannelRecord("stock:1")).opened([*REQUEST, STAMP, OTHER], None)
    ((_, stamp),) = [pair for pair in headers if pair[0] == STAMP[0]]
    assert stamp == encode(Stamp(ProcessName("orders"), 1, CallNumber(1), SnapshotId(0), CallNumber(1))).encode()


def test_a_call_that_names_several_parties_has_no_known_caller(program: Program) -> None:
    party = _opened(program)[0][-1]
    assert party[0] == PARTY
    outbound = Outbound(program, ChannelRecord("stock:1"))
    outbound.opened([*REQUEST, party, (PARTY, b"orders/Place#9")], None)
    assert program.callers == {"unknown": 1}
    outbound.opened([*REQUEST, party], None)
    assert program.callers["party"] == 1


def test_a_long_path_is_named_by_its_beginning(program: Program) -> None:
    """Else a few calls of anybody's make a report that no detector takes."""
    path = b"/s/" + b"x" * 1_000_000
    headers, call = Inbound(program, tells_party=True).opened([(b":path", path), REQUEST[1]], None)
    assert call is not None
    assert (b":path", path) in headers
    served = _served(program)
    assert (served.method, served.party) == (f"/s/{'x' * 253}", f"orders/{'x' * 253}#1")


@pytest.mark.parametrize("timeout", [b"99999999H", b"9" * 400 + b"n"])
def test_a_timeout_beyond_the_calendar_is_not_a_deadline(program: Program, timeout: bytes) -> None:
    """gRPC allows eight digits of hours; a report with the year 13,000 is refused."""
    _opened(program, (b"grpc-timeout", timeout))
    report = program.live.marked(SnapshotId(1))
    assert report is not None
    again = report_from_wire(report_to_wire(report))
    check_times(again)
    assert [call.deadline for call in again.served] == [None]


def test_an_ordinary_timeout_is_a_deadline(program: Program) -> None:
    _opened(program, (b"grpc-timeout", b"27000H"))
    report = program.live.marked(SnapshotId(1))
    assert report is not None
    assert [call.deadline for call in report_from_wire(report_to_wire(report)).served] == [1000.0 + 27_000 * 3600]
