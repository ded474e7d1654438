"""Connections to a PostgreSQL server as the agent sees them, with each driver: waits and owners of transactions."""

from __future__ import annotations

import asyncio
import functools
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import asyncpg
import psycopg
import psycopg2
import pytest
import sqlalchemy
import sqlalchemy.orm

from stilltrue import Agent
from stilltrue.model import PartyName
from stilltrue.protocol.report import Hold, Report, ResourceTarget
from stilltrue.protocol.requests.look import Look
from stilltrue.runtime.waits.databases.drivers import link_of
from tests.client.look.worlds import look_at, of, report_of
from tests.field.servers import Servers

pytestmark = pytest.mark.field
PATIENCE_SECONDS = 20.0
LOCK = "LOCK TABLE stock"
CONNECTS: dict[str, Callable[[str], Any]] = {"psycopg2": psycopg2.connect, "psycopg": psycopg.connect}


@pytest.fixture(scope="module")
def dsn(servers: Servers) -> str:
    dsn = servers.environment(("postgres",), "sessions")["FIELD_POSTGRES"]
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE stock (item int)")
    return dsn


@pytest.fixture
def agent() -> Iterator[Agent]:
    agent = Agent("shop", instance="shop", detector="127.0.0.1:1")
    yield agent
    agent.close()


def report_when(agent: Agent, found: Callable[[Report], bool]) -> Report:
    end = time.monotonic() + PATIENCE_SECONDS
    while not found(report := report_of(agent)):
        assert time.monotonic() < end, report
        time.sleep(0.02)
    return report


def stays(look: Look, party: str) -> bool:
    """Whether a look finds the party in the same wait. psycopg2 begins the transaction first, which is another wait."""
    return any(one.party == party and one.unchanged for one in look.parties)


class Having(threading.Thread):
    """A thread that has a connection while it waits for something else."""

    def __init__(self, agent: Agent, name: str, body: Callable[[Callable[[], None]], None]) -> None:
        super().__init__(name=name, daemon=True)
        self._agent, self._body = agent, body
        self.go, self.there = threading.Event(), threading.Event()
        self.start()
        assert self.there.wait(PATIENCE_SECONDS)

    def run(self) -> None:
        self._body(self._wait)

    def _wait(self) -> None:
        with self._agent.waiting_for("something else"):
            self.there.set()
            self.go.wait()

    def end(self) -> None:
        self.go.set()
        self.join()


@pytest.mark.parametrize("driver", CONNECTS)
def test_owners_of_transactions_and_waits_for_statements_are_found(agent: Agent, dsn: str, driver: str) -> None:
    holder, waiter = CONNECTS[driver](dsn), CONNECTS[driver](dsn)
    links = link_of(holder), link_of(waiter)
    assert links[0] is not None
    assert links[1] is not None

    def has(wait: Callable[[], None], connection: Any = holder) -> None:
        cursor = connection.cursor()
        cursor.execute(LOCK)
        wait()
        connection.rollback()

    def wants(connection: Any = waiter) -> None:
        connection.cursor().execute(LOCK)
        connection.rollback()

    thread = Having(agent, "holder", has)
    wanting = threading.Thread(target=wants, name="waiter", daemon=True)
    wanting.start()
    try:
        waits, client = ResourceTarget(resource=links[1].server), links[1].client

        def locks(report: Report) -> bool:
            """Whether the waiter's statement is under way, and not the one before it, which begins the transaction."""
            held = {hold.resource for hold in report.holds}
            return any(waits in wait.among for wait in report.waits) and client not in held

        report = report_when(agent, locks)
        assert {hold.resource: hold.party for hold in report.holds} == {links[0].client: "shop/thread:holder"}
        (wait,) = [wait for wait in report.waits if waits in wait.among]
        assert (wait.waiter, wait.uncoloured, wait.deadline) == ("shop/thread:waiter", True, None)
        report_when(agent, lambda report: stays(look_at(agent, report), "shop/thread:waiter"))
    finally:
        thread.end()
        wanting.join()
    assert not report_of(agent).holds
    holder.close()
    waiter.close()


@pytest.mark.parametrize("connect", [*CONNECTS.values(), None], ids=[*CONNECTS, "sqlalchemy"])
def test_a_connection_without_a_transaction_has_no_owner(agent: Agent, dsn: str, connect: Callable[[str], Any] | None) -> None:
    if connect is None:
        engine = sqlalchemy.create_engine(dsn.replace("postgresql:", "postgresql+psycopg2:"), isolation_level="AUTOCOMMIT")
        connect = lambda _: engine.connect().connection  # noqa: E731

    def has(wait: Callable[[], None]) -> None:
        connection = connect(dsn)
        connection.cursor().execute("SELECT 1")
        if not isinstance(connection, sqlalchemy.PoolProxiedConnection):
            connection.rollback()
        wait()
        connection.close()

    thread = Having(agent, "holder", has)
    assert not report_of(agent).holds
    thread.end()


def test_another_party_with_a_sqlalchemy_session_is_a_way_out(agent: Agent, dsn: str) -> None:
    engine = sqlalchemy.create_engine(dsn.replace("postgresql:", "postgresql+psycopg:"))
    lent: list[Any] = []

    def has(wait: Callable[[], None]) -> None:
        with sqlalchemy.orm.Session(engine) as session:
            session.execute(sqlalchemy.text(LOCK))
            lent.append(session)
            wait()

    def commits_later(wait: Callable[[], None]) -> None:
        mine = lent[0]
        wait()
        del mine

    first = Having(agent, "holder", has)
    report = report_when(agent, lambda report: bool(report.holds))
    assert {hold.party for hold in report.holds} == {"shop/thread:holder"}
    second = Having(agent, "other", commits_later)
    report = report_of(agent)
    assert {hold.party for hold in report.holds} == {"shop/thread:holder", "shop/thread:other"}
    ways = of(look_at(agent, report), "shop/thread:holder").ways_out
    assert "shop/thread:other" in {way.party for way in ways}
    second.end()
    first.end()


def test_an_attribute_that_other_parties_may_read_is_a_way_out(agent: Agent, dsn: str) -> None:
    class Stock:
        def __init__(self) -> None:
            self.database = psycopg.connect(dsn)

        def reserve(self, wait: Callable[[], None]) -> None:
            cursor = self.database.cursor()
            cursor.execute(LOCK)
            wait()
            self.database.close()

    thread = Having(agent, "holder", Stock().reserve)
    report = report_when(agent, lambda report: bool(report.holds))
    texts = [way.text for way in of(look_at(agent, report), "shop/thread:holder").ways_out if way.party is None]
    assert "its database connection is also in self, which others may use" in texts
    thread.end()


def test_who_else_has_a_collection_or_a_partial_with_the_connection_is_a_way_out(agent: Agent, dsn: str) -> None:
    handed: list[Any] = []

    def has(wait: Callable[[], None]) -> None:
        connection = psycopg.connect(dsn)
        connection.execute(LOCK)
        job = functools.partial(print, [connection])
        handed.append(job)
        wait()
        connection.close()

    def commits_later(wait: Callable[[], None]) -> None:
        job = handed.pop()
        wait()
        job.args[0][0].commit()

    first = Having(agent, "holder", has)
    second = Having(agent, "other", commits_later)
    report = report_when(agent, lambda report: bool(report.holds))
    ways = of(look_at(agent, report), "shop/thread:holder").ways_out
    assert [way.party for way in ways] == ["shop/thread:other"]
    second.end()
    report = report_of(agent)
    assert of(look_at(agent, report), "shop/thread:holder").ways_out == ()
    first.end()


def test_a_session_with_a_timeout_setting_is_in_doubt(agent: Agent, dsn: str) -> None:
    def has(wait: Callable[[], None]) -> None:
        connection = psycopg.connect(dsn, options="-c lock_timeout=5s")
        connection.execute("SELECT 1")
        wait()
        connection.close()

    thread = Having(agent, "holder", has)
    report = report_when(agent, lambda report: bool(report.holds))
    assert "lock_timeout" in of(look_at(agent, report), "shop/thread:holder").doubt
    thread.end()


async def test_tasks_and_asyncpg(agent: Agent, dsn: str) -> None:
    holder, waiter = await asyncpg.connect(dsn), await asyncpg.connect(dsn)
    links = link_of(holder), link_of(waiter)
    assert links[0] is not None
    assert links[1] is not None
    go, there = asyncio.Event(), asyncio.Event()

    async def has(connection: Any) -> None:
        async with connection.transaction():
            await connection.execute(LOCK)
            with agent.waiting_for("something else"):
                there.set()
                await go.wait()

    async def wants(connection: Any) -> None:
        await connection.fetch("SELECT * FROM stock WHERE item = $1", 1)

    tasks = [asyncio.create_task(has(holder), name="holder")]
    await there.wait()
    tasks.append(asyncio.create_task(wants(waiter), name="waiter"))
    own = asyncio.current_task()
    assert own is not None
    waits = ResourceTarget(resource=links[1].server)
    names = (PartyName(f"shop/task:{own.get_name()}"), PartyName("shop/task:holder"))
    owned = [Hold(party=name, resource=links[0].client) for name in names]

    def both_are_seen(report: Report) -> bool:
        # The test's own task has both connections too. The first cut may find it still running, as what the main thread does.
        waiting = any(waits in wait.among and wait.waiter == "shop/task:waiter" for wait in report.waits)
        return waiting and list(report.holds) == owned

    report = await asyncio.to_thread(report_when, agent, both_are_seen)
    look = await asyncio.to_thread(look_at, agent, report)
    assert of(look, "shop/task:waiter").unchanged
    go.set()
    await asyncio.gather(*tasks)
    await holder.close()
    await waiter.close()
