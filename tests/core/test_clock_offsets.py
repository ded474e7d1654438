"""Members' clocks: a cut outside the snapshot's time shifts the report's times, and never places a deadline later."""

from __future__ import annotations

from dataclasses import replace

import pytest

from detector.core.protocol.assembler import Assembled, PendingSnapshot
from detector.core.protocol.clock_offsets import STEP_SECONDS, ahead_seconds, in_detector_time
from stilltrue.model import PartyName, ProcessId, ProcessName, SnapshotId
from stilltrue.protocol.recorder import Recorder
from stilltrue.protocol.report import LocalWait, PartyTarget, Report

BEGUN, ENDED = 1_000.0, 1_002.0
PROCESS = ProcessId(service="s", instance=ProcessName("s-0"), incarnation=1)


def report_of(cut_at: float, deadline: float) -> Report:
    recorder = Recorder(process=PROCESS)
    recorder.waits(PartyName("s-0/a"), [PartyTarget(party=PartyName("s-0/b"))], cut_at - 1, deadline=deadline)
    report = recorder.marked(SnapshotId(1), cut_at)
    assert report is not None
    return report


def wait_of(report: Report) -> LocalWait:
    return in_detector_time(report, BEGUN, ENDED).waits[0]


def test_a_clock_is_trusted_unless_proved_wrong() -> None:
    report = report_of(1_001.0, 1_005.0)
    assert in_detector_time(report, BEGUN, ENDED) is report


@pytest.mark.parametrize("ahead", [-7_200.0, 7_200.0])
def test_a_wait_ends_no_later_than_it_truly_does(ahead: float) -> None:
    truly_ends = 1_005.0
    wait = wait_of(report_of(1_001.0 + ahead, truly_ends + ahead))
    assert wait.deadline is not None
    assert wait.since is not None
    assert truly_ends - (ENDED - BEGUN) <= wait.deadline <= truly_ends
    assert wait.since <= wait.deadline
    assert ahead_seconds(report_of(1_001.0 + ahead, truly_ends), BEGUN, ENDED) == pytest.approx(ahead, abs=ENDED - BEGUN)


def test_a_wait_without_a_deadline_stays_without_one() -> None:
    report = report_of(9_000.0, 9_001.0)
    endless = replace(report, waits=(replace(report.waits[0], deadline=None, since=None),))
    assert wait_of(endless) == endless.waits[0]


def test_a_snapshots_waits_use_the_detectors_clock_and_its_reports_stay_unchanged() -> None:
    pending = PendingSnapshot(snapshot=SnapshotId(1), members={PROCESS.instance: PROCESS}, begun=BEGUN, begun_by="ask")
    report = report_of(9_001.0, 9_005.0)
    assert pending.offer(report) is None
    assembled = pending.assembled(ENDED)
    assert [wait.deadline for wait in assembled.snapshot.waits.waits()] == [1_004.0]
    assert assembled.reports[PROCESS.instance] is report


def snapshot_of(number: int, report: Report, begun: float, earlier: Assembled | None) -> Assembled:
    pending = PendingSnapshot(snapshot=SnapshotId(number), members={PROCESS.instance: PROCESS}, begun=begun, begun_by="period")
    assert pending.offer(report) is None
    return pending.assembled(begun + 2.0, None if earlier is None else earlier.resolved)


def test_an_unchanged_report_with_a_wrong_clock_is_not_resolved_again() -> None:
    report = report_of(9_001.2, 9_005.0)
    first = snapshot_of(1, report, BEGUN, None)
    again = snapshot_of(2, replace(report, snapshot=SnapshotId(2), cut_at=9_011.17), BEGUN + 10.0, first)
    assert again.snapshot.waits is first.snapshot.waits
    stepped = snapshot_of(3, replace(report, cut_at=9_121.2), BEGUN + 20.0, again)
    assert [wait.deadline for wait in stepped.snapshot.waits.waits()] == [9_005.0 - 8_101.5]


def test_a_corrected_clock_is_trusted_again() -> None:
    report = report_of(9_001.0, 9_005.0)
    first = snapshot_of(1, report, BEGUN, None)
    mended = snapshot_of(2, replace(report, cut_at=BEGUN + 11.0), BEGUN + 10.0, first)
    assert [wait.deadline for wait in mended.snapshot.waits.waits()] == [9_005.0]


@pytest.mark.parametrize("off", [-7_200.0, -0.3, 0.7, 7_200.0])
@pytest.mark.parametrize("took", [0.01, 0.3, 1.2])
def test_a_rounded_shift_puts_no_deadline_later_and_none_earlier_by_more_than_a_step(off: float, took: float) -> None:
    begun, ended = BEGUN + 0.77, BEGUN + 0.77 + took
    cut, truly_ends = begun + took / 2, begun + 100.0
    (wait,) = in_detector_time(report_of(cut + off, truly_ends + off), begun, ended).waits
    assert wait.deadline is not None
    believed = off if begun <= cut + off <= ended else 0.0
    unproved = max(0.0, believed)
    assert truly_ends + believed - took - STEP_SECONDS <= wait.deadline <= truly_ends + unproved + 1e-6
