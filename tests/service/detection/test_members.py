"""Membership: leases, reconnections, and two programs under one name."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from detector.service.detection.membership.members import Member, NameTakenError, Roster, TooManyMembersError
from stilltrue.model import CallNumber, ProcessId, ProcessName, SnapshotId
from stilltrue.protocol.requests.cure import CureRequest
from stilltrue.protocol.requests.look import LookRequest


class Wire:
    def send_marker(self, snapshot: SnapshotId, settled: Sequence[CallNumber] = ()) -> None:
        pass

    def send_look(self, request: LookRequest) -> None:
        pass

    def send_stacks_request(self, number: int) -> None: ...

    def send_cure(self, request: CureRequest) -> None:
        pass

    def replaced(self, text: str) -> None:
        pass


def member(name: str, incarnation: int = 1, *, heard_at: float = 0.0, live: bool = True) -> Member:
    process = ProcessId(service="s", instance=ProcessName(name), incarnation=incarnation)
    return Member(
        process=process, labels={}, agent="", reactive=False, connected_at=heard_at, heard_at=heard_at, colour=SnapshotId(0),
        stream=Wire() if live else None,
    )  # fmt: skip


@pytest.mark.parametrize("incarnation", [1, 3])
def test_another_incarnation_replaces_one_that_is_gone_or_silent_for_a_lease(incarnation: int) -> None:
    roster = Roster(lease_seconds=5, members_max=2)
    gone = member("a", 2, live=False)
    roster.admit(gone)
    after = member("a", incarnation)
    assert roster.admit(after) is gone
    last = member("a", 4, heard_at=5.5)
    assert roster.admit(last) is after
    assert roster.is_member(last)
    assert not roster.is_member(after)
    assert len(roster) == 1


@pytest.mark.parametrize("incarnation", [1, 3])
def test_a_name_is_kept_by_the_first_to_connect(incarnation: int) -> None:
    roster = Roster(lease_seconds=5, members_max=2)
    first = member("a", 2)
    roster.admit(first)
    with pytest.raises(NameTakenError, match="its own instance name"):
        roster.admit(member("a", incarnation, heard_at=4.5))
    assert roster.is_member(first)


def test_a_replaced_connection_cannot_end_its_successor() -> None:
    roster = Roster(lease_seconds=5, members_max=2)
    old, new = member("a"), member("a")
    roster.admit(old)
    roster.admit(new)
    assert not roster.remove(old)
    assert roster.is_member(new)


def test_a_lease_runs_from_the_last_message() -> None:
    roster = Roster(lease_seconds=5, members_max=3)
    old, fresh = member("a", heard_at=10.0), member("b", heard_at=12.0)
    roster.admit(old)
    roster.admit(fresh)
    assert roster.with_expired_leases(15.0) == []
    assert roster.with_expired_leases(15.1) == [old]
    assert roster.with_expired_leases(18.0) == [old, fresh]


def test_the_bound_counts_names_not_connections() -> None:
    roster = Roster(lease_seconds=5, members_max=1)
    roster.admit(member("a"))
    roster.admit(member("a"))
    with pytest.raises(TooManyMembersError, match="--members-max"):
        roster.admit(member("b"))


def test_a_blocked_loop_makes_no_member_silent() -> None:
    """A stall of the detector's own (a large snapshot, a machine without time) ends no lease."""
    roster = Roster(lease_seconds=5, members_max=2)
    one = member("a")
    roster.admit(one)
    assert roster.with_expired_leases(8.0) == [one]
    roster.shift(4.0)
    assert roster.with_expired_leases(8.0) == []
    assert roster.with_expired_leases(9.5) == [one]
