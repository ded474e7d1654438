"""Callers of members that are not members: who is noticed, for how long, and that invented ones cannot flood the detector."""

from __future__ import annotations

import pytest

from detector.service.detection.membership import unjoined_callers
from detector.service.detection.membership.unjoined_callers import UnjoinedCallers
from stilltrue.model import Activity, CallNumber, ProcessId, ProcessName, SnapshotId
from stilltrue.protocol.report import Caller, Report, Seen

SERVER = ProcessName("a")


class Fleet:
    """A member that reports its callers; times are in seconds."""

    def __init__(self) -> None:
        self.members = {SERVER}
        self.callers = UnjoinedCallers(self.members.__contains__, lease_seconds=5, forget_seconds=600)

    def report(self, at: float, **highest: int) -> list[str]:
        """The member reports the highest numbers that it has received; returns who is found then."""
        seen = tuple(Seen(caller=Caller(ProcessName(name), 1), highest=CallNumber(one)) for name, one in highest.items())
        process = ProcessId(service="s", instance=SERVER, incarnation=1)
        report = Report(
            process=process, snapshot=SnapshotId(1), after=SnapshotId(0), cut_at=at, next_number=CallNumber(1),
            activity=Activity.IDLE, seen=seen,
        )  # fmt: skip
        self.callers.reported(report, at)
        return [str(one) for one in self.callers.found([SERVER], at)]


def test_a_caller_is_found_once_it_has_called_for_longer_than_a_lease() -> None:
    fleet = Fleet()
    assert [fleet.report(0, x=1), fleet.report(3, x=2), fleet.report(6, x=2)] == [[], [], []]
    assert fleet.report(7, x=3) == ["x"]
    assert fleet.callers.found([ProcessName("another")], 7) == []


def test_a_caller_is_forgotten_when_it_joins_or_has_not_called_for_long() -> None:
    fleet = Fleet()
    fleet.report(0, x=1, y=1)
    assert fleet.report(6, x=2, y=2) == ["x", "y"]
    fleet.members.add(ProcessName("x"))
    assert fleet.report(7, x=3, y=2) == ["y"]
    assert fleet.report(607, x=9, y=2) == []


def test_what_a_first_report_lists_may_be_long_past() -> None:
    fleet = Fleet()
    assert [fleet.report(at, x=7) for at in (0, 10, 20)] == [[], [], []]


def test_a_member_that_was_forgotten_and_calls_on_is_found() -> None:
    fleet = Fleet()
    fleet.members.add(ProcessName("x"))
    fleet.report(0, x=1)
    fleet.members.discard(ProcessName("x"))
    fleet.report(700, x=50)
    assert fleet.report(710, x=51) == ["x"]


def test_invented_callers_do_not_hide_those_that_are_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unjoined_callers, "CALLERS_MAX", 2)
    fleet = Fleet()
    fleet.report(0, x=1, y=1)
    assert fleet.report(6, invented=1, x=2, y=1) == ["x"]


def test_a_flood_of_invented_callers_costs_a_look_up_each() -> None:
    fleet, asked = Fleet(), 0

    def is_member(name: ProcessName) -> bool:
        nonlocal asked
        asked += 1
        return name in fleet.members

    fleet.callers = UnjoinedCallers(is_member, lease_seconds=5, forget_seconds=600)
    many = {f"x{at}": 1 for at in range(3 * unjoined_callers.CALLERS_MAX)}
    for at in (0.0, 0.1):
        fleet.report(at, **many)
    assert asked < 3 * len(many)
