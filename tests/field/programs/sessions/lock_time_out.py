"""A transaction that waits for locks no longer than it says."""

import psycopg


def bound(connection: psycopg.Connection, seconds: float) -> None:
    connection.execute(f"SET LOCAL lock_timeout = '{seconds:g}s'")
