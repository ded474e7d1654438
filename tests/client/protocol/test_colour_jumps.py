"""How far forged stamps can push a process's colour."""

from __future__ import annotations

from stilltrue.protocol.colour_jumps import INITIAL_SECONDS, ColourJumps

MOST, RATE = 10**9, 1000


def test_before_the_first_marker_a_process_may_catch_up_once() -> None:
    jumps = ColourJumps(MOST, RATE)
    assert jumps.grants(MOST, 0.0)
    assert not jumps.grants(1, 1e9)


def test_after_the_first_marker_the_colour_rises_no_faster_than_a_detector_counts() -> None:
    jumps = ColourJumps(MOST, RATE)
    jumps.follows(5, 100.0)
    assert jumps.grants(INITIAL_SECONDS * RATE, 100.0)
    assert not jumps.grants(1, 100.0)
    assert not jumps.grants(2 * RATE + 1, 102.0)
    assert jumps.grants(2 * RATE, 102.0)


def test_a_clock_that_runs_backwards_grants_nothing() -> None:
    jumps = ColourJumps(MOST, RATE)
    jumps.follows(5, 100.0)
    assert jumps.grants(INITIAL_SECONDS * RATE, 100.0)
    assert not jumps.grants(1, 50.0)


def test_a_marker_is_always_followed_and_counts_against_the_rate() -> None:
    jumps = ColourJumps(MOST, RATE)
    jumps.follows(5, 0.0)
    jumps.follows(INITIAL_SECONDS * RATE, 0.0)
    assert not jumps.grants(RATE + 1, 0.0)
    assert jumps.grants(RATE, 0.0)
