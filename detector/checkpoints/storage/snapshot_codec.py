"""Encodes and decodes snapshots as file bodies: of FIFO channels (payloads as bytes) and of dataflow pipelines (records)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar

from detector.checkpoints.protocol.points import CompletedPoint, PointKind, Record, State, Value
from detector.checkpoints.storage.files import FileFault, FileKind, SnapshotFileError, read_body, write_body
from detector.checkpoints.storage.values import from_json, to_json
from stilltrue.fifo import Channel, ChannelSnapshot, channel
from stilltrue.model import ProcessName, SnapshotId

M = TypeVar("M")
S = TypeVar("S")
LiveSnapshot = ChannelSnapshot[bytes, bytes]


def write_channels(path: Path, snapshot: LiveSnapshot) -> None:
    """Write a snapshot of live FIFO channels to a file; OSError if the write fails."""
    write_body(path, FileKind.CHANNELS, _to_body(snapshot, lambda message: message))


def read_channels(path: Path) -> LiveSnapshot:
    """Read a file of :func:`write_channels`; SnapshotFileError if it is damaged or of another kind."""
    return _read(path, FileKind.CHANNELS, lambda body: _from_body(body, _expect_bytes, _expect_bytes))


def write_point(path: Path, point: CompletedPoint) -> None:
    """Write a completed point to a file; OSError if the write fails, ValueKindError if a state cannot be stored."""
    body = _to_body(point.snapshot, lambda record: {"key": record.key, "value": record.value})
    about = {
        "kind": point.kind.value,
        "name": point.name,
        "triggered": point.triggered,
        "completed": point.completed,
        "finished": list(point.finished),
    }
    write_body(path, FileKind.POINT, {**body, "point": to_json(about)})


def read_point(path: Path) -> CompletedPoint:
    """Read a file of :func:`write_point`; SnapshotFileError if it is damaged or of another kind."""
    return _read(path, FileKind.POINT, _point)


Body = dict[str, Value]


def _read(path: Path, kind: FileKind, decode: Callable[[Body], M]) -> M:
    body = read_body(path, kind)
    try:
        return decode(body)
    except (KeyError, TypeError, ValueError) as error:
        raise SnapshotFileError(path, FileFault.MALFORMED, f"{type(error).__name__}: {error}") from error


def _to_body(snapshot: ChannelSnapshot[S, M], message: Callable[[M], object]) -> Body:
    states: list[Value] = [[name, to_json(state, str(name))] for name, state in sorted(snapshot.states.items())]
    channels: list[Value] = [
        [one.source, one.target, one.name, [to_json(message(item), str(one)) for item in messages]]
        for one, messages in sorted(snapshot.channels.items())
    ]
    return {"snapshot": int(snapshot.snapshot), "states": states, "channels": channels}


def _from_body(body: Body, state: Callable[[Value], S], message: Callable[[Value], M]) -> ChannelSnapshot[S, M]:
    channels: dict[Channel, tuple[M, ...]] = {}
    for item in _list(body["channels"]):
        source, target, name, messages = _list(item)
        channels[channel(_text(source), _text(target), _text(name))] = tuple(message(from_json(m)) for m in _list(messages))
    states: dict[ProcessName, S] = {}
    for item in _list(body["states"]):
        name, value = _list(item)
        states[ProcessName(_text(name))] = state(from_json(value))
    return ChannelSnapshot(
        snapshot=SnapshotId(_int(body["snapshot"])), states=MappingProxyType(states), channels=MappingProxyType(channels)
    )


def _point(body: Body) -> CompletedPoint:
    about = _mapping(body["point"])
    snapshot: State = _from_body(body, lambda value: value, _record)
    return CompletedPoint(
        id=snapshot.snapshot,
        kind=PointKind(about["kind"]),
        name=_text(about["name"]),
        triggered=_float(about["triggered"]),
        completed=_float(about["completed"]),
        snapshot=snapshot,
        finished=tuple(ProcessName(_text(name)) for name in _list(about["finished"])),
    )


def _record(value: Value) -> Record:
    fields = _mapping(value)
    key = fields["key"]
    return Record(value=fields["value"], key=None if key is None else _text(key))


def _list(value: Value) -> list[Value]:
    if not isinstance(value, list):
        raise TypeError(f"expected a list, got {type(value).__name__}")
    return value


def _mapping(value: Value) -> Mapping[str, Value]:
    if not isinstance(value, dict):
        raise TypeError(f"expected a mapping, got {type(value).__name__}")
    return value


def _text(value: Value) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected text, got {type(value).__name__}")
    return value


def _int(value: Value) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"expected an integer, got {type(value).__name__}")
    return value


def _float(value: Value) -> float:
    if not isinstance(value, int | float):
        raise TypeError(f"expected a number, got {type(value).__name__}")
    return float(value)


def _expect_bytes(value: Value) -> bytes:
    if not isinstance(value, bytes):
        raise TypeError(f"expected bytes, got {type(value).__name__}")
    return value
