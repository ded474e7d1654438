"""Nobody is late while what has come in time waits: behind a loop that stood still, or in the detector's own queue."""

from __future__ import annotations

from detector.ops.patience import LONGER_SECONDS_MAX, UNREAD_SECONDS_MAX, Patience


def test_what_is_due_is_looked_at_when_it_is_due() -> None:
    patience = Patience()
    patience.held(0.01, 5.0)
    assert patience.due(5.0) == 5.0


def test_a_loop_that_stood_still_puts_it_off_as_long_again_up_to_a_bound() -> None:
    patience = Patience()
    patience.held(0.5, 5.0)
    assert patience.due(5.0) == 5.5
    other = Patience()
    other.held(60.0, 5.0)
    assert other.due(5.0) == 5.0 + LONGER_SECONDS_MAX


def test_while_reports_wait_to_be_read_nobody_is_late() -> None:
    patience, now = Patience(), 5.0
    for _ in range(10):
        patience.unread(now)
        assert patience.due(5.0) > now
        now = patience.due(5.0)
    assert patience.due(now) == now  # all are read


def test_reports_that_never_end_do_not_put_it_off_for_ever() -> None:
    patience, now = Patience(), 5.0
    while patience.due(5.0) > now or now == 5.0:
        now = max(now, patience.due(5.0))
        patience.unread(now)
        assert now <= 5.0 + UNREAD_SECONDS_MAX + 1
    assert now >= 5.0 + UNREAD_SECONDS_MAX - 1
