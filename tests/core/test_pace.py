"""How long a rush of joins delays snapshots (rule 5 of the initiator)."""

from __future__ import annotations

import pytest

from detector.core.protocol.pace import RUSH_SECONDS_MAX, RUSH_SECONDS_PER_MEMBER, Pace, Timing


def put_off_for(members: int, seconds: float) -> float:
    """How long the first snapshot is delayed when ``members`` join evenly within ``seconds``."""
    pace = Pace(Timing())
    joined = 0
    while joined < members:
        now = seconds * joined / members
        pace.joined(now)
        joined += 1
        if joined > 100 and pace.rush_until(joined) <= now:
            return now
    return pace.rush_until(members)


def test_a_large_fleet_that_joins_slowly_is_waited_for_until_it_has_joined() -> None:
    assert put_off_for(10_000, 50.0) > 50.0  # on busy cores; a snapshot meanwhile would double the time


@pytest.mark.parametrize("members", [100, 1_000, 100_000])
def test_the_wait_is_bounded_by_the_size_of_the_fleet(members: int) -> None:
    pace = Pace(Timing())
    for step in range(10_000):
        pace.joined(0.01 * step)
    longest = max(Timing().rush_seconds_max, min(members * RUSH_SECONDS_PER_MEMBER, RUSH_SECONDS_MAX))
    assert pace.rush_until(members) == pytest.approx(longest)
