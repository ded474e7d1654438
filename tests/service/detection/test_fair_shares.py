"""A bound shared by all members: a member with at most an equal share is always accepted."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from detector.service.detection.membership.fair_shares import FairShares
from detector.service.detection.membership.members import Member, Roster
from stilltrue.model import ProcessId, ProcessName, SnapshotId

NAMES = [ProcessName(f"p{number}") for number in range(5)]


def member(name: ProcessName) -> Member:
    return Member(
        process=ProcessId(service="s", instance=name, incarnation=1), labels={}, agent="", reactive=False, connected_at=0.0,
        heard_at=0.0, colour=SnapshotId(0), stream=None,
    )  # fmt: skip


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(st.sampled_from(NAMES), st.integers(0, 150))))
def test_an_equal_share_is_always_accepted_and_the_total_returns_to_the_bound(steps: list[tuple[ProcessName, int]]) -> None:
    shares, has = FairShares(100), dict[ProcessName, int]()
    for name, amount in steps:
        taken = shares.take(name, amount)
        assert taken or amount > 100 // len({*has, name})
        if taken:
            has[name] = amount
        assert taken or sum(has.values()) - has.get(name, 0) + amount > 100
    for name in list(has):
        if not shares.keep(name):
            shares.release(name)
            del has[name]
    assert sum(has.values()) <= 100


def test_the_share_of_a_member_that_left_is_free() -> None:
    roster = Roster(lease_seconds=1.0, members_max=10, reports_entries_max=100)
    first, second = (member(name) for name in NAMES[:2])
    roster.admit(first)
    roster.admit(second)
    assert roster.accepts_entries(first.name, 90)
    assert not roster.accepts_entries(second.name, 60)
    roster.remove(first)
    assert roster.accepts_entries(second.name, 60)


def test_reports_of_lost_members_are_dropped_before_any_is_refused() -> None:
    roster = Roster(lease_seconds=1.0, members_max=10, reports_bytes_max=100)
    first, second = (member(name) for name in NAMES[:2])
    roster.admit(first)
    roster.admit(second)
    assert roster.accepts_bytes(first.name, 90)
    first.lost_at = 5.0
    assert roster.accepts_bytes(second.name, 60)
