"""The report shows whether incidents become more or less frequent."""

from __future__ import annotations

import re

import pytest

from detector.analysis.report.trends import DAY_SECONDS, covered, trends
from tests.analysis.test_report import BEGUN, _analysis, _incident


@pytest.mark.parametrize(
    ("spans", "seconds"),
    [
        ([], 0.0),
        ([(0.0, 10.0)], 10.0),
        ([(0.0, 10.0), (5.0, 20.0)], 20.0),
        ([(0.0, 50.0), (5.0, 20.0)], 50.0),
        ([(40.0, 50.0), (-10.0, 20.0)], 30.0),
        ([(-10.0, 500.0)], 100.0),
        ([(-10.0, -5.0), (200.0, 500.0)], 0.0),
    ],
)
def test_time_with_a_deadlock_counts_once(spans: list[tuple[float, float]], seconds: float) -> None:
    assert covered(spans, 0.0, 100.0) == seconds


def test_both_halves_are_shown_side_by_side() -> None:
    incidents = tuple(_incident(number, ("a", "b")) for number in (1, 60, 70, 99))
    near = ({"first": BEGUN + 10.0}, {"first": BEGUN + 20.0}, {"first": BEGUN + 5999.0})
    chart, text = trends(_analysis(incidents, near_misses=near))
    assert "earlier half: 1 incident, 2 near misses, a deadlock for 1 min 5 s" in text
    assert "later half: 3 incidents, 1 near miss, a deadlock for 3 min 15 s" in text
    assert sum(map(int, re.findall(r"incidents: (\d+)<", chart))) == len(incidents)
    assert sum(map(int, re.findall(r"near misses: (\d+)<", chart))) == len(near)


@pytest.mark.parametrize(
    ("seconds", "name"),
    [
        (20.0, "a second"),
        (600.0, "in 10 seconds"),
        (3600.0, "a minute"),
        (43_200.0, "in 10 minutes"),
        (2 * DAY_SECONDS, "an hour"),
        (30 * DAY_SECONDS, "a day"),
    ],
)
def test_a_bar_stands_for_a_time_that_fits_the_length_of_the_archive(seconds: float, name: str) -> None:
    chart, _ = trends(_analysis((_incident(1, ("a", "b")),), ended=BEGUN + seconds))
    assert f"incidents and near misses {name}<" in chart
