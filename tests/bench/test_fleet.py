"""The benchmark of a fleet runs with a few members; no figure is asserted. ``python -m tests.bench.fleet`` measures."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import pytest

from tests.bench.fleet.bodies import Fleet
from tests.bench.fleet.measure import measured
from tests.bench.fleet.plot import fitted, plot
from tests.bench.fleet.restart import returned


@pytest.mark.not_in_ci
@pytest.mark.longer
@pytest.mark.parametrize(("deadlocks", "holds"), [(0, "FALSE"), (4, "TRUE")])
async def test_a_small_fleet_is_measured(deadlocks: int, holds: str) -> None:
    found = await measured(Fleet(members=4, churn=0.5, deadlocks=deadlocks), seconds=2.5, warm=1.0)
    assert found.snapshots
    assert found.processor > 0
    assert (found.holds, found.incidents) == (holds, deadlocks)


def test_the_plot_shows_each_fleet_and_the_fit() -> None:
    rows = [{"members": members, "processor": 0.02 + 0.0005 * members} for members in (30, 100, 1000)]
    assert fitted(rows) == pytest.approx((0.0005, 0.02))
    drawn = ET.fromstring(plot(rows))
    assert len(list(drawn.iter("{http://www.w3.org/2000/svg}circle"))) == len(rows)
    assert "20 ms and 0.50 ms a member" in "".join(drawn.itertext())


@pytest.mark.not_in_ci
@pytest.mark.longer
async def test_a_small_fleet_reconnects_to_a_killed_detector() -> None:
    found = await returned(members=4, down=0.2)
    assert len(found.back) == found.members
    assert (found.refused, found.most >= 1) == (0, True)
    assert 0 <= found.back[0] <= found.back[-1] <= found.whole
