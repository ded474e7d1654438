"""The metric that names a core: services only, few series, and removed with the incident."""

from __future__ import annotations

from dataclasses import replace

import pytest

from detector.service.detection.incident.incident_labels import OTHERS, SERIES_MAX, IncidentLabels
from detector.service.detection.incident.incidents import Incident
from detector.service.metrics import Metrics
from stilltrue.model import PartyName, ProcessName, SnapshotId


def incident(id: str, *core: str, closed: float | None = None) -> Incident:
    return Incident(
        id=id, predicate="deadlock", scope="all", core=tuple(map(PartyName, core)), behind=(), opened=1.0, seen=1.0,
        closed=closed, first_snapshot=SnapshotId(1), last_snapshot=SnapshotId(1),
    )  # fmt: skip


class Shown:
    """A registry, the members that are known, and the series that are there."""

    def __init__(self) -> None:
        self.metrics = Metrics()
        self.known: dict[str, str] = {}
        self.labels = IncidentLabels(self.metrics, self._service)

    def _service(self, process: ProcessName) -> str | None:
        return self.known.get(process)

    def series(self) -> list[str]:
        lines = self.metrics.text().decode().splitlines()
        return [line for line in lines if line.startswith("stilltrue_incident_core_info{")]


@pytest.fixture
def shown() -> Shown:
    made = Shown()
    made.known = {"orders-7f9c": "orders", "orders-x2b1": "orders", "stock-0": "stock"}
    return made


LINE = 'stilltrue_incident_core_info{predicate="deadlock",services="orders, stock"} 1.0'


def test_the_services_are_named_once_and_no_process_is(shown: Shown) -> None:
    shown.labels.changed(incident("a", "stock-0/Reserve#3", "orders-7f9c/Place#7", "orders-x2b1/Place#1"))
    assert shown.series() == [LINE]


def test_it_is_gone_with_the_incident(shown: Shown) -> None:
    one = incident("a", "stock-0/Reserve#3", "orders-7f9c/Place#7")
    shown.labels.changed(one)
    shown.labels.changed(replace(one, closed=2.0))
    assert shown.series() == []


def test_two_incidents_between_the_same_services_are_one_series_until_both_end(shown: Shown) -> None:
    one, two = incident("a", "stock-0/x", "orders-7f9c/y"), incident("b", "stock-0/z", "orders-x2b1/y")
    shown.labels.changed(one)
    shown.labels.changed(two)
    assert shown.series() == [LINE]
    shown.labels.changed(replace(one, closed=2.0))
    assert shown.series() == [LINE]
    shown.labels.changed(replace(two, closed=2.0))
    assert shown.series() == []


def test_each_predicate_has_its_own(shown: Shown) -> None:
    shown.labels.changed(incident("a", "stock-0/x", "orders-7f9c/y"))
    shown.labels.changed(replace(incident("b", "stock-0/z"), predicate="gridlock"))
    assert shown.series() == [LINE, 'stilltrue_incident_core_info{predicate="gridlock",services="stock"} 1.0']


def test_a_process_that_has_left_is_still_named_by_its_service(shown: Shown) -> None:
    one = incident("a", "stock-0/Reserve#3", "orders-7f9c/Place#7")
    shown.labels.changed(one)
    del shown.known["stock-0"]
    shown.labels.changed(one)
    assert shown.series() == [LINE]


def test_after_a_restart_the_services_are_named_as_soon_as_they_are_known(shown: Shown) -> None:
    known, shown.known = shown.known, {}
    one = incident("a", "stock-0/Reserve#3", "orders-7f9c/Place#7")
    shown.labels.changed(one)
    assert shown.series() == ['stilltrue_incident_core_info{predicate="deadlock",services="unknown services"} 1.0']
    shown.known = known
    shown.labels.changed(one)
    assert shown.series() == [LINE]


def test_a_shrunken_core_is_labelled_by_its_remaining_services(shown: Shown) -> None:
    shown.known["billing-0"] = "billing"
    one = incident("a", "stock-0/Reserve#3", "orders-7f9c/Place#7", "billing-0/Charge#1")
    shown.labels.changed(one)
    shown.labels.changed(replace(one, core=one.core[:2]))
    assert shown.series() == [LINE]


def test_a_large_core_and_many_incidents_leave_few_short_series(shown: Shown) -> None:
    shown.known = {f"p{n}": f"service-{n:03}" for n in range(200)}
    shown.labels.changed(incident("large", *(f"p{n}/x" for n in range(100))))
    (line,) = shown.series()
    assert "service-005 and 94 more" in line
    for n in range(100):
        shown.labels.changed(incident(f"i{n}", f"p{n}/x", f"p{n + 1}/x"))
    assert len(shown.series()) == SERIES_MAX
    assert OTHERS in shown.series()[-1]
