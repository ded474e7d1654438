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
            "other_thread": "a watchdog closes a connection that was passed to it",
        },
        servers=("postgres",),
    ),
    Entry(
        program="asyncpg_5",
        source="MagicStack/asyncpg 5",
        library="asyncpg, PostgreSQL",
        what="Each coroutine acquires a second connection while it holds one; there are as many coroutines as connections.",
        near={
            "time_out": "`acquire` has a timeout",
            "one_more": "there is one more connection",
            "handed_over": "a connection is handed to a task that releases it",
            "call_later": "an event loop timer releases a connection",
            "terminated": "a task terminates the pool later",
            "server_ends_it": "the server ends idle sessions, and the pool takes lost connections back",
        },
        servers=("postgres",),
    ),
    Entry(
        program="asyncpg_close",
        source="widely known",
        library="asyncpg, PostgreSQL",
        what="A coroutine closes the pool of which it still has a connection; `close()` waits until all have been released.",
        near={
            "slow": "the coroutine still works, and closes nothing yet",
            "time_out": "`close` has a timeout",
            "released": "a task releases the connection later",
            "terminated": "a timer terminates the pool",
        },
        servers=("postgres",),
        elsewhere={"site": 1},
    ),
    Entry(
        program="asyncpg_in_handler",
        source="widely known",
        library="asyncpg, grpcio (aio), PostgreSQL",
        what="A handler has a pool's only connection, on which it has run a query with arguments, and needs another one.",
        near={
            "limit": "the second `acquire` has a timeout",
            "one_more": "there is one more connection",
            "slow": "the handler is slow, and does not need the second connection yet",
            "timer": "a timer returns the connection later",
            "may_cancel": "a request may cancel the handler",
            "may_return": "a request may return the connection",
        },
        servers=("postgres",),
    ),
    Entry(
        program="aiohttp_in_handler",
        source="widely known",
        library="aiohttp, grpcio (aio)",
        what="A handler reads a download from a session with one connection, and makes a request with it for each part.",
        near={
            "limit": "the session has a timeout",
            "slow": "the handler is slow, and makes no request yet",
            "closed": "another task closes the session later",
            "may_cancel": "a request may cancel the handler",
        },
    ),
    Entry(
        program="aiopg_113",
        source="aio-libs/aiopg 113",
        library="aiopg, PostgreSQL",
        what="Connections are acquired in a nested manner from a pool without a timeout.",
        near={
            "one_more": "there is one more connection",
            "wait_for": "the inner query runs in `asyncio.wait_for`",
            "callback": "a callback of another task releases a connection",
        },
        servers=("postgres",),
    ),
    Entry(
        program="redis_nested",
        source="IlyaSkriblovsky/txredisapi 90",
        library="redis-py, Redis",
        what="A command is sent inside a `with` block that holds a connection from a blocking pool without a timeout.",
        near={
            "one_more": "there is one more connection",
            "time_out": "the pool has a timeout",
            "timer": "a timer returns a connection",
        },
        servers=("redis",),
    ),
    Entry(
        program="psycopg_810",
        source="psycopg/psycopg 810",
        library="psycopg_pool, PostgreSQL",
        what="Threads wait in the pool until the pool's own timeout (in the report on closing, here nested).",
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
        what="A code path takes a connection and does not return it when it fails; the pool stays empty.",
        near={
            "collected": "a SQLAlchemy pool gets back connections that are garbage-collected",
            "kept": "the failed request's connection is still in a list",
            "traceback": "the failed task is kept, and its traceback refers to the connection",
            "weakly": "a task searches weak references and releases the leaked connection",
            "time_out": "`acquire` has a timeout",
            "one_left": "one connection is in use, and will be released",
        },
        servers=("postgres",),
        predicate="orphaned-resource",
    ),
    Entry(
        program="requests_3461",
        source="psf/requests 3461",
        library="requests",
        what="Responses that are streamed keep their connections; a session with one blocking connection has none left.",
        near={
            "another": "another thread returns the first response's connection later",
            "room": "there is one more connection, which another thread returns later",
            "read": "the first response is read at once, and the second request is not made yet",
        },
    ),
    Entry(
        program="nested_downloads",
        source="widely known",
        library="httpx",
        what="A download is read from a client with one connection, which makes a request with the same client for each part.",
        near={
            "patience": "the client has a timeout for its connections",
            "another": "another thread closes the download later",
            "slow": "the requests within the download are not made yet",
        },
    ),
)
