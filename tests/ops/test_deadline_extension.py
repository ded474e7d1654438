"""No member is late while its message waits behind a blocked event loop, or in the detector's own queue."""

from __future__ import annotations

from detector.ops.deadline_extension import LONGER_SECONDS_MAX, UNREAD_SECONDS_MAX, DeadlineExtension


def test_a_short_delay_of_the_loop_extends_nothing() -> None:
    extension = DeadlineExtension()
    extension.held(0.01, 5.0)
    assert extension.due(5.0) == 5.0


def test_a_blocked_loop_extends_deadlines_by_as_much_up_to_a_bound() -> None:
    extension = DeadlineExtension()
    extension.held(0.5, 5.0)
    assert extension.due(5.0) == 5.5
    other = DeadlineExtension()
    other.held(60.0, 5.0)
    assert other.due(5.0) == 5.0 + LONGER_SECONDS_MAX


def test_no_member_is_late_while_reports_wait_to_be_read() -> None:
    extension, now = DeadlineExtension(), 5.0
    for _ in range(10):
        extension.unread(now)
        assert extension.due(5.0) > now
        now = extension.due(5.0)
    assert extension.due(now) == now  # all are read


def test_endless_reports_do_not_extend_a_deadline_for_ever() -> None:
    extension, now = DeadlineExtension(), 5.0
    while extension.due(5.0) > now or now == 5.0:
        now = max(now, extension.due(5.0))
        extension.unread(now)
        assert now <= 5.0 + UNREAD_SECONDS_MAX + 1
    assert now >= 5.0 + UNREAD_SECONDS_MAX - 1
