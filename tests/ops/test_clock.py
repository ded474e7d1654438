"""The clock: never backwards, and forward when the machine's clock is set forward."""

from __future__ import annotations

from detector.ops.clock import Clock


class Times:
    wall = 1000.0
    steady = 5.0


def test_the_clock_never_runs_backwards_and_follows_a_jump_forward_on_demand() -> None:
    times = Times()
    clock = Clock(wall=lambda: times.wall, steady=lambda: times.steady)
    assert clock.now() == 1000.0
    times.steady += 2
    times.wall -= 500
    assert clock.now() == 1002.0
    times.steady += 1
    assert clock.catch_up() == 0.0
    times.wall = 9000.0
    assert clock.now() == 1003.0
    assert clock.catch_up() == 7997.0
    assert clock.now() == 9000.0
    times.steady += 1
    times.wall = 8000.0
    assert clock.catch_up() == 0.0
    assert clock.now() == 9001.0
