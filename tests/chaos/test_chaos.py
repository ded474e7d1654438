"""The nemesis in its short form, and the oracle's checks of wrong answers. ``make chaos`` runs ten minutes."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from stilltrue.v1 import detector_pb2, snapshot_pb2
from tests.chaos import rounds
from tests.chaos.holdings import Holdings, Sample
from tests.chaos.nemesis import play
from tests.chaos.oracle import BreachError, Oracle
from tests.chaos.processors import Window, busy_seconds, used_seconds
from tests.chaos.rounds import Nemesis

TRUE, FALSE = snapshot_pb2.HOLDS_TRUE, snapshot_pb2.HOLDS_FALSE


@pytest.mark.longer
@pytest.mark.slow
@pytest.mark.live
@pytest.mark.timeout(900)
async def test_thirty_seconds_of_the_nemesis_break_no_promise(tmp_path: Path) -> None:
    assert "no breach" in await play(seed=13, seconds=30.0, folder=tmp_path)


def test_only_processor_time_taken_by_others_counts_as_starvation(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, busy, used = [0.0], [0.0], [0.0]
    monkeypatch.setattr("tests.chaos.processors.time.monotonic", lambda: clock[0])
    monkeypatch.setattr("tests.chaos.processors.busy_seconds", lambda: busy[0])
    monkeypatch.setattr("tests.chaos.processors.used_seconds", lambda ours: used[0])
    monkeypatch.setattr("tests.chaos.processors.os.cpu_count", lambda: 2)
    window = Window(list)
    clock[0], busy[0], used[0] = 10.0, 20.0, 18.0  # all processors worked, for ours
    assert not window.starved()
    used[0] = 2.0
    assert window.starved()


def test_this_processs_own_time_is_counted() -> None:
    ours, all_of_it = used_seconds([os.getpid()]), busy_seconds()
    while used_seconds([os.getpid()]) < ours + 0.05:
        sum(range(10_000))
    assert busy_seconds() > all_of_it


def verdict(holds: snapshot_pb2.Holds, *core: str) -> snapshot_pb2.Verdict:
    return snapshot_pb2.Verdict(predicate="deadlock", holds=holds, core=core, snapshot=snapshot_pb2.SnapshotRef(id=1))


def incident(closed: float | None = None) -> detector_pb2.Incident:
    return detector_pb2.Incident(id="i", predicate="deadlock", core=["a/x", "b/y"], ending="a went on", closed=closed)


@pytest.fixture
def oracle() -> Oracle:
    oracle = Oracle()
    oracle.forms(("a", "b"))
    oracle.answered(oracle.epoch, oracle.proved, verdict(TRUE, "a/x", "b/y"))
    oracle.has_incidents(oracle.epoch, [incident()])
    return oracle


def test_a_true_about_other_parties_is_a_breach(oracle: Oracle) -> None:
    with pytest.raises(BreachError, match=r"TRUE of \['a', 'c'\]"):
        oracle.answered(oracle.epoch, oracle.proved, verdict(TRUE, "a/x", "c/z"))
    oracle.ends()
    with pytest.raises(BreachError, match="stuck are"):
        oracle.answered(oracle.epoch, oracle.proved, verdict(TRUE, "a/x", "b/y"))


def test_a_false_while_a_proved_deadlock_stands_is_a_breach(oracle: Oracle) -> None:
    with pytest.raises(BreachError, match="FALSE while"):
        oracle.answered(oracle.epoch, oracle.proved, verdict(FALSE))


def test_a_false_asked_for_before_the_deadlock_was_proved_may_arrive_after_the_proof(oracle: Oracle) -> None:
    oracle.answered(oracle.epoch, False, verdict(FALSE))


def test_an_answer_begun_before_the_truth_changed_is_not_a_breach(oracle: Oracle) -> None:
    before = oracle.epoch
    oracle.ends()
    oracle.answered(before, True, verdict(TRUE, "a/x", "b/y"))
    oracle.has_incidents(before, [incident(closed=1.0)])


def test_an_incident_that_closes_or_disappears_during_its_deadlock_is_a_breach(oracle: Oracle) -> None:
    for found in ([incident(closed=1.0)], []):
        with pytest.raises(BreachError, match="while its deadlock stands"):
            oracle.has_incidents(oracle.epoch, found)


async def test_an_incident_that_stays_open_after_its_deadlock_is_a_breach(monkeypatch: pytest.MonkeyPatch) -> None:
    class Listing(Nemesis):
        async def ask(self) -> snapshot_pb2.Verdict:
            return verdict(FALSE)

        async def ListIncidents(self, _: object, timeout: float) -> object:  # noqa: N802 - gRPC's
            return detector_pb2.ListIncidentsResponse(incidents=listed)

        async def ListSnapshots(self, _: object, timeout: float) -> object:  # noqa: N802 - gRPC's
            return detector_pb2.ListSnapshotsResponse()

    monkeypatch.setattr(rounds, "CALM_SECONDS_MAX", 0.5)
    monkeypatch.setattr(Window, "starved", lambda _: False)
    monkeypatch.setattr(Listing, "stub", property(lambda self: self))
    nemesis = Listing(cast("Any", SimpleNamespace(processes=list, writes=lambda: True)), 1, 1.0, 1.0)
    listed = [incident(closed=1.0)]
    await nemesis._is_calm()
    listed = [incident()]
    with pytest.raises(BreachError, match="an incident is open"):
        await nemesis._is_calm()


def test_a_listed_snapshot_that_disappears_is_a_breach(oracle: Oracle) -> None:
    oracle.lists([1, 2])
    oracle.lists([1, 2, 3])
    with pytest.raises(BreachError, match=r"\[2\] were listed"):
        oracle.lists([1, 3, 4])


def samples(
    *, process: int = 1, descriptors: tuple[int, int] = (25, 25), mebibytes: tuple[int, int] = (150, 150)
) -> list[Sample]:
    """Twenty in the third quarter of a run, twenty in the fourth."""
    return [
        Sample(at=0.5 + 0.25 * quarter + number / 100, process=process, descriptors=descriptors[quarter],
               resident_bytes=mebibytes[quarter] << 20)
        for quarter in (0, 1)
        for number in range(20)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (samples(), None),
        (samples(descriptors=(25, 40)), "descriptors grow: 25 in the third quarter of the run, 40 in the fourth"),
        (samples(mebibytes=(150, 220)), "memory grows: 150 MiB in the third quarter of the run, 220 MiB in the fourth"),
        (samples(descriptors=(40, 25), mebibytes=(220, 150)), None),
    ],
)
def test_a_growing_detector_is_a_breach(given: list[Sample], found: str | None) -> None:
    assert Holdings(600.0, given).growth() == found


def test_growth_is_measured_within_one_run_of_the_detector_of_some_minutes() -> None:
    before = samples(process=1, mebibytes=(90, 90))[:20]
    after = samples(process=2, mebibytes=(150, 150))[20:]
    assert Holdings(600.0, before + after).growth() is None
    assert Holdings(60.0, samples(mebibytes=(150, 220))).growth() is None


def test_a_fault_that_holds_descriptors_for_a_while_is_not_growth() -> None:
    peak = Sample(at=0.9, process=1, descriptors=64, resident_bytes=400 << 20)
    found = Holdings(600.0, [*samples(), *[peak] * 5])
    assert found.growth() is None
    assert found.summary() == (
        "descriptors at most 64, resident at most 400 MiB; one process, third and fourth quarter: 25 and 25 descriptors, "
        "150 and 150 MiB"
    )
