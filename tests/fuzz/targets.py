"""Everything that is read from outside, as functions of bytes: each either takes them or refuses them in its own words."""

from __future__ import annotations

import contextlib
import json
import logging
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

from google.protobuf.message import DecodeError

from detector.archive.files import ArchiveError, ArchiveFiles
from detector.archive.journal import FILE, Journal
from detector.commands.processes.webhook import Webhook
from detector.core.document.reader import parse_document
from detector.core.document.values import DocumentError
from detector.core.document.writer import write_document
from detector.core.protocol.assembler import PendingSnapshot
from detector.core.registry import ask, find_predicate, predicate_names
from detector.ops.address import AddressError, parse_address
from detector.ops.logs import Log
from detector.service.grpc_api.message_weight import weight
from detector.service.grpc_api.report_reader import ReportReader, check_times, split
from detector.service.grpc_api.roles import SecurityError, read_grants
from detector.service.settings import SettingError, expectations_from_texts, predicate_settings_from_texts, scope_from_text
from detector.sidecar.call_headers import timeout_of
from detector.sidecar.http2 import frames
from detector.sidecar.http2.hpack import HeaderReader
from detector.sidecar.http2.messages import MessageCounter
from detector.sidecar.http2.relay import Relay
from detector.simulator.scenario.language import ScenarioError, parse
from stilltrue.model import ProcessName, SnapshotId
from stilltrue.protocol.report import Report
from stilltrue.protocol.stamp import decode, encode
from stilltrue.protocol.stamp_tag import StampTags
from stilltrue.protocol.wire.cure import cure_from_wire, cured_from_wire
from stilltrue.protocol.wire.look import look_from_wire, request_from_wire
from stilltrue.protocol.wire.report import report_from_wire, report_to_wire
from stilltrue.protocol.wire.stacks import found_from_wire
from stilltrue.protocol.wire.values import MalformedError, process_from_wire
from stilltrue.settings import SettingRefusedError, read_settings
from stilltrue.v1 import agent_pb2, snapshot_pb2

Target = Callable[[bytes], object]
TARGETS: dict[str, Target] = {}
PREDICATES = [find_predicate(name, None) for name in predicate_names()]
BYTES_MAX = 2**16
OWN = snapshot_pb2.ProcessId(service="orders", instance="orders-1", incarnation=7).SerializeToString()
TAGS = StampTags(["the-key-of-the-fuzzed-fleet"])


def target(read: Target) -> Target:
    """One reader, by its name."""
    TARGETS[read.__name__] = read
    return read


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


@target
def reports(data: bytes) -> None:
    """A report that is taken can be written again, and is the same then."""
    try:
        report = report_from_wire(snapshot_pb2.Report.FromString(data))
    except (DecodeError, MalformedError):
        return
    if "nan" not in repr(report):
        assert report_from_wire(report_to_wire(report)) == report


@target
def hellos(data: bytes) -> None:
    """Who somebody says to be."""
    try:
        process_from_wire(agent_pb2.ConnectRequest.FromString(data).hello.process)
    except (DecodeError, MalformedError):
        return


@target
def agent_messages(data: bytes) -> None:
    """Whatever an agent sends after its hello; a report is the same whether its heading is read by itself or not."""
    me = ProcessName("orders")
    try:
        message = agent_pb2.ConnectRequest.FromString(data)
        look_from_wire(me, message.looked)
        cured_from_wire(me, message.cured)
        found_from_wire(me, message.stacks_found)
        found = split(data)
        if found is not None and (short := found.message()) is not None:
            assert message.WhichOneof("message") == "report"
            assert "nan" in str(short) or short == message.report
            ReportReader().decoded(short, found)
    except (DecodeError, MalformedError):
        return


@target
def differences(data: bytes) -> None:
    """Two reports in a row, each sent as its difference from the one before."""
    reader, half = ReportReader(OWN), len(data) // 2
    try:
        for part in (data[:half], data[half:]):
            found = reader.restored(agent_pb2.ConnectRequest.FromString(part).difference, BYTES_MAX)
            assert len(found.rest) <= BYTES_MAX
            if (message := found.message()) is not None:
                reader.decoded(message, found)
    except (DecodeError, MalformedError):
        return


@target
def weights(data: bytes) -> None:
    """The estimate of a report before it is decoded: no less than what is in it, up to the bound where it stops."""
    most = len(data) // 4
    found = weight(data, snapshot_pb2.Report, most)
    try:
        report = snapshot_pb2.Report.FromString(data)
    except DecodeError:
        return
    assert found >= min(most, len(report.waits) + len(report.made) + len(report.served) + len(report.pools))


@target
def detector_messages(data: bytes) -> None:
    """Whatever a detector sends to an agent."""
    try:
        message = agent_pb2.ConnectResponse.FromString(data)
        request_from_wire(message.look)
        cure_from_wire(message.cure)
    except (DecodeError, MalformedError):
        return


def _reports(data: bytes) -> Iterator[Report]:
    """Two reports, of the processes a and b, whatever names the bytes give them."""
    half = len(data) // 2
    for name, part in (("a", data[:half]), ("b", data[half:])):
        message = snapshot_pb2.Report.FromString(part)
        message.process.CopyFrom(snapshot_pb2.ProcessId(service=name, instance=name, incarnation=1))
        message.snapshot, message.after = 1, 0
        yield report_from_wire(message)


@target
def assemblies(data: bytes) -> None:
    """Reports that are taken make a snapshot, which every predicate judges, and which is written and read again."""
    try:
        reports = list(_reports(data))
        for report in reports:
            check_times(report)
    except (DecodeError, MalformedError):
        return
    members = {report.process.instance: report.process for report in reports}
    pending = PendingSnapshot(snapshot=SnapshotId(1), members=members, begun=10.0, begun_by="fuzz")
    for report in reports:
        pending.offer(report)
    assembled = pending.assembled(11.0)
    for predicate in PREDICATES:
        ask(predicate, assembled.snapshot)
    parse_document(json.dumps(write_document(assembled.snapshot)), file="written")


@target
def stamps(data: bytes) -> None:
    """A stamp that is read is written the same; nothing without our tag is verified."""
    stamp = decode(data)
    if stamp is not None:
        assert decode(encode(stamp)) == stamp
    assert TAGS.verify(_text(data), "/s/M", reply=False) is None


@target
def documents(data: bytes) -> None:
    """A snapshot document."""
    with contextlib.suppress(DocumentError):
        parse_document(_text(data), file="fuzz")


@target
def scenarios(data: bytes) -> None:
    """A scenario file."""
    try:
        parse(_text(data))
    except ScenarioError:
        return


@target
def header_blocks(data: bytes) -> None:
    """HPACK: two blocks with one table."""
    reader = HeaderReader()
    half = len(data) // 2
    try:
        reader.read(data[:half])
        reader.read(data[half:])
    except frames.BrokenFrameError:
        return


class _Wire:
    """A transport to nowhere."""

    def write(self, data: bytes) -> None: ...
    def close(self) -> None: ...
    def abort(self) -> None: ...
    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def get_extra_info(self, name: str) -> None: ...
    def is_closing(self) -> bool:
        return False


class _Nowhere:
    """A route that refuses every call."""

    direction = "inbound"
    address = None
    tls = None

    def begin(self, relay: Relay) -> None: ...
    def choose(self, relay: Relay, headers: Any) -> Any:
        return "nowhere"


@target
def connections(data: bytes) -> None:
    """Frames to the sidecar, in pieces: a fault of ours is an exception that the relay had to report."""
    faults: list[str] = []
    relay = Relay(cast("Any", _Nowhere()), fault=faults.append, warn=lambda _: None, closed=lambda _: None)
    relay.caller.connection_made(cast("Any", _Wire()))
    relay.caller.data_received(frames.PREFACE)
    for at in range(0, len(data), 37):
        relay.caller.data_received(data[at : at + 37])
    relay.caller.connection_lost(None)
    assert not faults


@target
def messages(data: bytes) -> None:
    """gRPC's own framing."""
    whole, pieces = MessageCounter(), MessageCounter()
    whole.feed(data)
    for at in range(0, len(data), 3):
        pieces.feed(data[at : at + 3])
    assert whole.count == pieces.count
    timeout_of(data)


HOOK = Webhook({"name": "sidecar", "args": []}, Log("stilltrue.fuzz"))


@target
def reviews(data: bytes) -> None:
    """An AdmissionReview; what is asked of us in words is asked in the annotations."""
    logging.getLogger("stilltrue.fuzz").disabled = True
    assert HOOK._review(data).status in {200, 400}
    pod = {"metadata": {"annotations": {"stilltrue.dev/inject": "true", "stilltrue.dev/upstream": _text(data)}}, "spec": {}}
    assert HOOK._review(json.dumps({"request": {"uid": "1", "object": pod}}).encode()).status in {200, 400}


@target
def settings(data: bytes) -> None:
    """What the command line and the environment say."""
    text = _text(data)
    for read in (scope_from_text, lambda one: expectations_from_texts([one]), lambda one: predicate_settings_from_texts([one])):
        with contextlib.suppress(SettingError):
            cast("Any", read)(text)
    with contextlib.suppress(AddressError):
        parse_address(text)
    try:
        read_settings({}, {"STILLTRUE_LABELS": text, "STILLTRUE_BLOCK_SECONDS_MAX": text, "STILLTRUE_INSTANCE": text})
    except SettingRefusedError:
        return


@target
def roles(data: bytes) -> None:
    """A roles file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "roles.toml"
        path.write_bytes(data)
        try:
            read_grants(path)
        except SecurityError:
            return


@target
def archives(data: bytes) -> None:
    """A file that poses as Parquet is left out with a reason; a journal ends where it is torn."""
    with tempfile.TemporaryDirectory() as folder:
        day = Path(folder) / "reports" / "day=2026-11-22"
        day.mkdir(parents=True)
        (day / "000000000001-000000000002-abcdef01.parquet").write_bytes(data)
        (Path(folder) / FILE).write_bytes(data)
        with contextlib.suppress(ArchiveError):
            ArchiveFiles(folder).scan("reports")
        list(Journal(Path(folder)).read())


def run(name: str, data: bytes) -> None:
    """Give ``data`` to one reader."""
    TARGETS[name](data)
