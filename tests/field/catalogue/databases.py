"""Databases: waits that go through the locks of a PostgreSQL or Redis server, which the probe reports."""

from __future__ import annotations

from tests.field.entry import Entry

ENTRIES = (
    Entry(
        program="row_lock",
        source="widely known",
        library="psycopg 3, gRPC, PostgreSQL",
        what="A service calls another while it holds a row lock, and the other needs the row.",
        near={
            "lock_time_out": "the session that waits for the row has a `lock_timeout`",
            "idle_time_out": "the database ends sessions that stay idle in a transaction for long",
            "other_thread": "another thread commits the transaction later",
            "deadline": "the call has a deadline",
            "autocommit": "there is no transaction",
        },
        processes=("probe", "stock", "orders"),
        servers=("postgres",),
        elsewhere={"postgres": 2},
    ),
    Entry(
        program="row_in_session",
        source="widely known",
        library="SQLAlchemy (ORM), psycopg 3, gRPC, PostgreSQL",
        what="A service calls another while its ORM session has changed a row, and the other changes the row.",
        near={
            "registry": "the session's connection is kept where others can find it",
            "committed": "the change is committed before the call",
        },
        processes=("probe", "stock", "orders"),
        servers=("postgres",),
        elsewhere={"postgres": 2},
    ),
    Entry(
        program="row_in_async_session",
        source="widely known",
        library="SQLAlchemy (ORM, asyncio), asyncpg, gRPC, PostgreSQL",
        what="A task calls another service while its ORM session has changed a row, and the other changes the row.",
        near={
            "timer": "a timer cancels the task later",
            "committed": "the change is committed before the call",
        },
        processes=("probe", "stock", "orders"),
        servers=("postgres",),
        elsewhere={"postgres": 2},
    ),
    Entry(
        program="row_in_fastapi",
        source="widely known",
        library="FastAPI, SQLAlchemy (ORM), psycopg 3, PostgreSQL",
        what="An endpoint calls another service while the session of its dependency has changed a row that the other wants.",
        near={
            "registry": "the dependency keeps the session where others can find it",
            "other_thread": "another thread has the request, and will roll back what is in its state",
        },
        processes=("probe", "stock", "orders"),
        servers=("postgres",),
        elsewhere={"postgres": 2, "stock": 1, "orders": 1},
    ),
    Entry(
        program="row_in_django",
        source="widely known",
        library="Django (ORM), psycopg 3, gRPC, PostgreSQL",
        what="A service calls another in a transaction in which it has locked a row, and the other locks the row.",
        near={
            "other_thread": "the connection is shared with another thread, which rolls back later",
            "deadline": "the call has a deadline",
        },
        processes=("probe", "stock", "orders"),
        servers=("postgres",),
        elsewhere={"postgres": 2},
    ),
    Entry(
        program="advisory_lock",
        source="widely known",
        library="psycopg 3, gRPC, PostgreSQL",
        what="A service calls another while its session has an advisory lock, and the other needs the lock.",
        near={
            "lock_time_out": "the session that waits for the lock has a `lock_timeout`",
            "idle_time_out": "the database ends sessions that stay idle for long",
            "other_thread": "another thread unlocks it later, on the same connection",
            "deadline": "the call has a deadline",
            "unlocked": "the lock was released before the call",
        },
        processes=("probe", "stock", "orders"),
        servers=("postgres",),
        elsewhere={"postgres": 2},
    ),
    Entry(
        program="redis_lock",
        source="widely known",
        library="redis-py, gRPC, Redis",
        what="A service calls another while it holds a lock in Redis, and the other needs the lock.",
        near={
            "time_to_live": "the lock has a timeout",
            "limit": "the wait for the lock has a timeout",
            "deleted": "another thread deletes the key later",
            "lost": "the key has been given to another holder meanwhile",
            "shared": "the lock's token is not thread-local, and another thread releases the lock later",
            "deadline": "the call has a deadline",
        },
        processes=("probe", "stock", "orders"),
        servers=("redis",),
        elsewhere={"redis": 1},
    ),
    Entry(
        program="two_databases",
        source="widely known",
        library="psycopg 3, PostgreSQL",
        what="Two services update the same rows of two databases in opposite orders.",
        near={"committed": "each commits in one database before it uses the other"},
        processes=("orders", "stock", "probe-first", "probe-second"),
        servers=("postgres",),
        elsewhere={"postgres-first": 2, "postgres-second": 2},
    ),
)
