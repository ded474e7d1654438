"""Converts the frames of FIFO channels to protobuf and back; no other module of this package uses ``channels.proto``.

Decoding checks everything: a frame that breaks the contract, by the other end's fault, raises FrameError.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

from stilltrue.fifo.errors import ChannelError
from stilltrue.fifo.model import Channel, ChannelRecord, LocalRecord
from stilltrue.fifo.topology import Topology
from stilltrue.model import ProcessName, SnapshotId
from stilltrue.v1 import channels_pb2 as pb

LiveRecord = LocalRecord[bytes, bytes]


class FrameError(ChannelError):
    """A frame breaks the contract of ``channels.proto``; the message names the field."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """Introduces the sender: its process, and the digest of its topology."""

    process: ProcessName
    digest: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Payload:
    """A message of the application on the channel ``name`` from this end to the other."""

    name: str
    number: int
    payload: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkerFrame:
    """A marker on the channel ``name``."""

    name: str
    snapshot: SnapshotId


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordFrame:
    """A local record that is being flooded."""

    record: LiveRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenUp:
    """A process cannot finish ``snapshot``."""

    snapshot: SnapshotId
    reason: str


@dataclass(frozen=True, slots=True)
class Goodbye:
    """The sender closes the stream cleanly."""


Frame = Hello | Payload | MarkerFrame | RecordFrame | GivenUp | Goodbye


def digest_of(topology: Topology) -> bytes:
    """The digest of a topology, by which two processes check that they have the same one."""
    text = "\n".join([*topology.processes, "", *(f"{one.source}\t{one.target}\t{one.name}" for one in topology.channels)])
    return hashlib.sha256(text.encode()).digest()


def encode(frame: Frame) -> pb.ChannelFrame:
    """Convert ``frame`` to its protobuf message."""
    match frame:
        case Hello():
            return pb.ChannelFrame(hello=pb.ChannelHello(process=frame.process, topology_digest=frame.digest))
        case Payload():
            message = pb.ChannelMessage(name=frame.name, number=frame.number, payload=frame.payload)
            return pb.ChannelFrame(message=message)
        case MarkerFrame():
            return pb.ChannelFrame(marker=pb.ChannelMarker(name=frame.name, snapshot=frame.snapshot))
        case RecordFrame():
            return pb.ChannelFrame(record=_record_to(frame.record))
        case GivenUp():
            return pb.ChannelFrame(given_up=pb.ChannelGivenUp(snapshot=frame.snapshot, reason=frame.reason))
        case Goodbye():
            return pb.ChannelFrame(goodbye=pb.ChannelGoodbye())


def decode(message: pb.ChannelFrame) -> Frame:
    """Convert ``message`` to its frame. Raises FrameError if it breaks the contract."""
    match message.WhichOneof("frame"):
        case "hello":
            hello = message.hello
            return Hello(process=_process(hello.process, "hello.process"), digest=hello.topology_digest)
        case "message":
            number = _positive(message.message.number, "message.number")
            return Payload(name=message.message.name, number=number, payload=message.message.payload)
        case "marker":
            return MarkerFrame(name=message.marker.name, snapshot=_snapshot(message.marker.snapshot, "marker.snapshot"))
        case "record":
            return RecordFrame(record=_record_from(message.record))
        case "given_up":
            snapshot = _snapshot(message.given_up.snapshot, "given_up.snapshot")
            return GivenUp(snapshot=snapshot, reason=message.given_up.reason)
        case "goodbye":
            return Goodbye()
        case _:
            raise FrameError("frame: empty, or of an unknown kind")


def _record_to(record: LiveRecord) -> pb.ChannelLocalRecord:
    return pb.ChannelLocalRecord(
        snapshot=record.snapshot,
        process=record.process,
        state=record.state,
        incoming=[
            pb.ChannelContents(channel=_channel_to(one.channel), received=one.received, messages=one.messages)
            for one in record.incoming
        ],
        sent=[pb.ChannelCount(channel=_channel_to(one), sent=count) for one, count in record.sent],
    )


def _record_from(record: pb.ChannelLocalRecord) -> LiveRecord:
    incoming = [
        ChannelRecord(
            channel=_channel_from(one.channel, "record.incoming.channel"),
            received=one.received,
            messages=tuple(one.messages),
        )
        for one in record.incoming
    ]
    sent = [(_channel_from(one.channel, "record.sent.channel"), int(one.sent)) for one in record.sent]
    _expect_once((one.channel for one in incoming), "record.incoming")
    _expect_once((one for one, _ in sent), "record.sent")
    return LocalRecord(
        snapshot=_snapshot(record.snapshot, "record.snapshot"),
        process=_process(record.process, "record.process"),
        state=record.state,
        incoming=tuple(sorted(incoming, key=lambda one: one.channel)),
        sent=tuple(sorted(sent)),
    )


def _channel_to(one: Channel) -> pb.ChannelName:
    return pb.ChannelName(source=one.source, target=one.target, name=one.name)


def _channel_from(one: pb.ChannelName, field: str) -> Channel:
    source, target = _process(one.source, f"{field}.source"), _process(one.target, f"{field}.target")
    return Channel(source=source, target=target, name=one.name)


def _process(name: str, field: str) -> ProcessName:
    if not name:
        raise FrameError(f"{field}: empty")
    return ProcessName(name)


def _snapshot(number: int, field: str) -> SnapshotId:
    return SnapshotId(_positive(number, field))


def _positive(number: int, field: str) -> int:
    if number < 1:
        raise FrameError(f"{field}: must be at least 1")
    return int(number)


def _expect_once(channels: Iterable[Channel], field: str) -> None:
    seen: set[Channel] = set()
    for one in channels:
        if one in seen:
            raise FrameError(f"{field}: duplicate {one}")
        seen.add(one)
