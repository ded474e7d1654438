"""Connection pools: those that have a connection wait for another."""

from __future__ import annotations

from tests.field.entry import Entry

ENTRIES = (
    Entry(
        program="sqlalchemy_8671",
        source="sqlalchemy/sqlalchemy 8671",
        library="SQLAlchemy 2, psycopg 3, PostgreSQL",
        what="Each request takes a second connection while it holds one; there are as many requests as connections.",
        near={
            "time_out": "the pool has a timeout",
            "overflow": "the pool may overflow",
            "timer": "a timer closes one of the connections",
            "registry": "a module's list has one of the connections",
            "finalizer": "a finalizer closes one of the connections",
            "other_thread": "a watchdog closes a connection that it was lent",
        },
        servers=("postgres",),
    ),
    Entry(
        program="asyncpg_5",
        source="MagicStack/asyncpg 5",
        library="asyncpg, PostgreSQL",
        what="Each coroutine acquires a second connection while it has one; there are as many coroutines as connections.",
        near={
            "time_out": "`acquire` has a timeout",
            "one_more": "there is one connection more",
            "handed_over": "a connection is handed to a task that releases it",
            "call_later": "a timer of the loop releases a connection",
            "terminated": "a task terminates the pool later",
            "server_ends_it": "the server ends idle sessions, and the pool takes lost connections back",
        },
        servers=("postgres",),
    ),
    Entry(
        program="aiopg_113",
        source="aio-libs/aiopg 113",
        library="aiopg, PostgreSQL",
        what="Connections are acquired in a nested manner from a pool without a timeout.",
        near={
            "one_more": "there is one connection more",
            "wait_for": "the inner query stands in `asyncio.wait_for`",
            "callback": "a callback of another task releases a connection",
        },
        servers=("postgres",),
    ),
    Entry(
        program="redis_nested",
        source="IlyaSkriblovsky/txredisapi 90",
        library="redis-py, Redis",
        what="A command is sent inside a `with` block that has a connection, from a blocking pool that waits for ever.",
        near={
            "one_more": "there is one connection more",
            "time_out": "the pool has a timeout",
            "timer": "a timer gives a connection back",
        },
        servers=("redis",),
    ),
    Entry(
        program="psycopg_810",
        source="psycopg/psycopg 810",
        library="psycopg_pool, PostgreSQL",
        what="Threads wait in the pool for what the pool's own timeout ends (there on closing, here nested).",
        near={
            "grows": "the pool may grow",
            "timer": "a timer returns a connection",
            "closed": "a thread closes the pool later",
        },
        servers=("postgres",),
        predicate="gridlock",
    ),
    Entry(
        program="klangk_690",
        source="mcdonc/klangk 690",
        library="asyncpg, PostgreSQL (SQLAlchemy takes back what is collected: a near miss)",
        what="A code path takes a connection and does not give it back when it fails; the pool is empty for good.",
        near={
            "collected": "a SQLAlchemy pool takes back what the garbage collector finds",
            "kept": "the failed request's connection is still in a list",
            "traceback": "the failed task is kept, and its traceback has the connection",
            "weakly": "a task looks through weak references and releases what is left over",
            "time_out": "`acquire` has a timeout",
            "one_left": "one connection is in use, and will be released",
        },
        servers=("postgres",),
        predicate="orphaned-resource",
    ),
)
