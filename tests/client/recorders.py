"""A recorder, a stamp and a cut, for the tests of the recorder's rules."""

from __future__ import annotations

from stilltrue.model import CallNumber, ProcessId, ProcessName, SnapshotId
from stilltrue.protocol.books.ledger import ChannelRecord
from stilltrue.protocol.recorder import Bounds, Recorder
from stilltrue.protocol.report import Report
from stilltrue.protocol.stamp import Stamp


def recorder(name: str = "a", *, reactive: bool = True, bounds: Bounds | None = None) -> Recorder:
    return Recorder(
        process=ProcessId(service=name, instance=ProcessName(name), incarnation=1), reactive=reactive, bounds=bounds
    )


def stamp(number: int = 1, *, colour: int = 0, floor: int = 1, source: str = "b") -> Stamp:
    return Stamp(ProcessName(source), 1, CallNumber(number), SnapshotId(colour), CallNumber(floor))


def cut(of: Recorder, snapshot: int, now: float = 1.0) -> Report:
    report = of.marked(SnapshotId(snapshot), now)
    assert report is not None
    return report


CHANNEL = ChannelRecord("b:1")
