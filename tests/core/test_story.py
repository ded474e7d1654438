"""The log of a snapshot, which explains its outcome."""

from __future__ import annotations

from detector.core.protocol.initiator import Initiator
from detector.core.protocol.pace import Timing
from detector.core.protocol.story import SnapshotLog
from stilltrue.model import ProcessId, ProcessName, SnapshotId
from stilltrue.protocol.recorder import Recorder

ONE, TWO, THREE = SnapshotId(1), SnapshotId(2), SnapshotId(3)


def test_an_event_about_several_snapshots_is_in_the_story_of_each() -> None:
    log = SnapshotLog()
    log.record(10.0, "begins", ONE)
    log.record(10.5, "a report comes", TWO, after=SnapshotId(0))
    log.record(11.0, "ends", TWO)
    assert log.story(ONE) == ["0.000 s: begins", "0.500 s: a report comes"]
    assert log.story(TWO) == ["0.000 s: a report comes", "0.500 s: ends"]
    assert log.story(THREE) == []


def test_the_oldest_events_are_forgotten() -> None:
    log = SnapshotLog(2)
    for number in range(3):
        log.record(float(number), f"happening {number}", ONE)
    assert log.story(ONE) == ["0.000 s: happening 1", "1.000 s: happening 2"]


def test_the_initiators_story_explains_a_snapshot() -> None:
    process = ProcessId(service="s", instance=ProcessName("a"), incarnation=1)
    lost = ProcessId(service="s", instance=ProcessName("b"), incarnation=1)
    recorder, initiator = Recorder(process=process), Initiator(Timing(period_seconds=0))
    initiator.joined(process, SnapshotId(0), 0.0)
    initiator.joined(lost, SnapshotId(0), 0.0)
    initiator.asked(1, 1.0)
    report = recorder.marked(ONE, 1.0)
    assert report is not None
    initiator.reported(report, 1.25)
    initiator.reported(report, 1.5)
    initiator.lost(lost.instance, 2.0)
    assert initiator.story(ONE) == [
        "0.000 s: begins for ask: markers to a, b",
        "0.250 s: the report of a is accepted: next call 1, cut for (0, 1]",
        "0.500 s: the report of a is refused (duplicate): next call 1, cut for (0, 1]",
        "1.000 s: b is lost",
        "1.000 s: ends incomplete",
    ]
