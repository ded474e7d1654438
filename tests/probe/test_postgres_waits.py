"""The waits derived from the rows of a PostgreSQL server's views."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from detector.probe.postgres import Database
from detector.probe.postgres_waits import Backend, Backends, on_cycles, seconds
from detector.probe.reading import Reading, UnusableServerError
from stilltrue.model import PartyName
from stilltrue.protocol.report import LocalWait, PartyTarget, ResourceTarget
from stilltrue.runtime.waits.databases.names import link


def waiting(pid: int, *blockers: int, **more: Any) -> Backend:
    return Backend(pid=pid, state="active", waiting_since="12:00", blockers=blockers, **row(pid, more))


def idle(pid: int, **more: Any) -> Backend:
    return Backend(pid=pid, **{"state": "idle in transaction", "state_changed": "12:00", **row(pid, more)})


def row(pid: int, more: dict[str, Any]) -> dict[str, Any]:
    return {"address": "10.0.0.7", "port": 40_000 + pid, **more}


def read(*rows: Backend, now: float = 100.0, backends: Backends | None = None) -> Reading:
    return (backends or Backends("db", None)).read(rows, now)


def waits(reading: Reading) -> dict[str, LocalWait]:
    return {wait.waiter: wait for wait in reading.waits}


def process(pid: int) -> PartyName:
    return PartyName(f"db/process-{pid}")


def test_a_session_waits_for_its_blockers_and_an_idle_one_for_its_client() -> None:
    reading = read(waiting(1, 2, 3), idle(2), idle(3, state="idle in transaction (aborted)"))
    found = waits(reading)
    assert found[process(1)].among == (PartyTarget(party=process(2)), PartyTarget(party=process(3)))
    assert found[process(1)].needs == 2
    client = link(2, "10.0.0.7", 40_002, None)
    assert client is not None
    assert found[process(2)].among == (ResourceTarget(resource=client.client),)
    assert all(wait.uncoloured for wait in reading.waits)
    assert {hold.party: hold.resource for hold in reading.holds}[process(2)] == client.server


@pytest.mark.parametrize(
    "blocker",
    [
        idle(2, state="active"),
        idle(2, state="fastpath function call"),
        idle(2, ours=False),
        idle(2, address=""),
        idle(2, address="127.0.0.1"),
    ],
    ids=["at work", "other state", "hidden, or no client's", "unix socket", "loopback of another network"],
)
def test_a_session_that_may_proceed_by_itself_has_no_wait(blocker: Backend) -> None:
    assert process(2) not in waits(read(waiting(1, 2), blocker))


def test_an_idle_session_outside_a_transaction_that_blocks_another_waits_for_its_client() -> None:
    """It can only have an advisory lock of its session; and only a timeout for idle sessions ends that."""
    timeouts = (("idle_session_timeout", 60.0), ("idle_in_transaction_session_timeout", 20.0), ("transaction_timeout", 20.0))
    found = waits(read(waiting(1, 2), idle(2, state="idle", state_age=10.0, timeouts=timeouts), idle(3, state="idle")))
    client = link(2, "10.0.0.7", 40_002, None)
    assert client is not None
    assert found[process(2)].among == (ResourceTarget(resource=client.client),)
    assert found[process(2)].deadline == 150.0
    assert process(3) not in found


def test_a_prepared_transaction_may_be_ended_by_any_party() -> None:
    assert not read(waiting(1, 0)).waits
    assert waits(read(waiting(1, 0, 2), idle(2)))[process(1)].among == (PartyTarget(party=process(2)),)


def test_a_cycle_within_one_server_ends_by_itself() -> None:
    found = waits(read(waiting(1, 2), waiting(2, 3), waiting(3, 1), waiting(4, 1)))
    assert set(found) == {process(4)}
    assert on_cycles({1: (1,), 2: (1,)}) == {1}


def test_a_loopback_client_is_known_within_the_servers_own_network() -> None:
    backends = Backends("db", "here")
    assert process(2) in waits(read(waiting(1, 2), idle(2, address="127.0.0.1"), backends=backends))
    assert link(2, "127.0.0.1", 40_002, "here") != link(2, "127.0.0.1", 40_002, "elsewhere")
    assert link(2, "::ffff:10.0.0.7", 5, None) == link(2, "10.0.0.7", 5, "anywhere")


def test_a_wait_keeps_its_number_and_a_new_one_gets_another() -> None:
    backends = Backends("db", None)
    first = read(waiting(1, 2), idle(2), backends=backends)
    assert read(waiting(1, 2), idle(2), now=101.0, backends=backends) == first
    changes = (
        replace(waiting(1, 2), waiting_since="12:01"),
        waiting(1, 2, started="again"),
        waiting(1, 2, 3),
        idle(2, state_changed="12:01"),
    )
    for changed in changes:
        others = [one for one in (waiting(1, 2), idle(2), idle(3)) if one.pid != changed.pid]
        again = waits(read(changed, *others, backends=backends))
        assert again[process(changed.pid)].number not in {wait.number for wait in first.waits}


@pytest.mark.parametrize(
    ("timeouts", "of_waiter", "of_idle"),
    [
        ({"lock_timeout": 5.0}, 103.0, None),
        ({"statement_timeout": 9.0}, 104.0, None),
        ({"lock_timeout": 5.0, "statement_timeout": 6.0}, 101.0, None),
        ({"idle_in_transaction_session_timeout": 60.0}, None, 150.0),
        ({"transaction_timeout": 30.0}, 110.0, 110.0),
        ({"lock_timeout": 1.0}, 100.0, None),
        ({"lock_timeout": 0.0}, None, None),
    ],
)
def test_default_timeouts_are_deadlines(timeouts: dict[str, float], of_waiter: float | None, of_idle: float | None) -> None:
    ages = {"waiting_age": 2.0, "statement_age": 5.0, "state_age": 10.0, "transaction_age": 20.0}
    common = {**ages, "timeouts": tuple(timeouts.items())}
    found = waits(read(waiting(1, 2, **common), idle(2, **common)))
    assert (found[process(1)].deadline, found[process(2)].deadline) == (of_waiter, of_idle)


def test_a_setting_changed_by_a_statement_or_function_is_doubt() -> None:
    assert read(waiting(1, 2, doubt="its statement names a timeout")).doubts == {process(1): "its statement names a timeout"}


def test_timeouts_are_parsed_in_every_notation() -> None:
    assert [seconds(one) for one in ("0", "5000", "5s", "1min", "250ms", "1.5s", "2h")] == [0, 5, 5, 60, 0.25, 1.5, 7200]
    assert seconds("soon") > 0


@pytest.mark.parametrize("dsn", ["nonsense", "hots=db.shop dbname=orders", "http://db.shop/orders"])
def test_a_connection_string_that_libpq_cannot_read_is_refused_at_once(dsn: str) -> None:
    with pytest.raises(UnusableServerError, match=r"^DSN: .*; for example postgresql://"):
        Database(dsn, "orders-db")
    Database("host=db.shop dbname=orders user=stilltrue", "orders-db")
