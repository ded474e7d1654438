"""Which leases are sent: reports renew a lease, but content that only a lease has is still sent."""

from __future__ import annotations

import pytest

from stilltrue.runtime.membership.leases import SKIPPED_MAX, Leases
from stilltrue.v1 import agent_pb2 as pb

SECONDS = 3.0
SIGHT = pb.Sight(servers=1, calls=7)


@pytest.fixture
def leases() -> Leases:
    return Leases(pb.Hello(sight=SIGHT), 0.0)


def test_a_lease_is_due_each_third_of_its_term_and_at_once_on_demand(leases: Leases) -> None:
    assert not leases.due(0.9, SECONDS)
    assert leases.due(1.0, SECONDS)
    assert leases.must_send(pb.Lease(sight=SIGHT), 1.0)
    assert not leases.due(1.9, SECONDS)
    leases.demanded = True
    assert leases.due(1.9, SECONDS)


def test_a_report_renews_the_lease_once(leases: Leases) -> None:
    leases.reported()
    assert not leases.must_send(pb.Lease(colour=4, sight=SIGHT), 1.0)
    assert leases.must_send(pb.Lease(colour=4, sight=SIGHT), 2.0)


def test_a_demanded_lease_is_sent_despite_a_report(leases: Leases) -> None:
    leases.reported()
    leases.demanded = True
    assert leases.must_send(pb.Lease(colour=4, sight=SIGHT), 0.1)
    leases.reported()
    assert not leases.must_send(pb.Lease(colour=5, sight=SIGHT), 1.0)


@pytest.mark.parametrize(
    "news",
    [
        pb.Lease(reports_dropped=1, sight=SIGHT),
        pb.Lease(stamps_refused=1, sight=SIGHT),
        pb.Lease(sight=pb.Sight(servers=1, calls=7, channels_unseen=1)),
        pb.Lease(sight=pb.Sight(servers=1)),
    ],
)
def test_a_lease_with_new_content_is_sent(leases: Leases, news: pb.Lease) -> None:
    leases.reported()
    assert leases.must_send(news, 1.0)
    leases.reported()
    assert not leases.must_send(news, 2.0)


def test_counts_of_calls_are_sent_occasionally(leases: Leases) -> None:
    sent = 0
    for at in range(1, 2 * (SKIPPED_MAX + 1) + 1):
        leases.reported()
        sent += leases.must_send(pb.Lease(sight=pb.Sight(servers=1, calls=7 + at)), float(at))
    assert sent == 2
