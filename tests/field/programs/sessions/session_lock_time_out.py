"""A session that waits for locks no longer than it says, in whatever transaction."""

import psycopg


def bound(connection: psycopg.Connection, seconds: float) -> None:
    connection.execute(f"SET lock_timeout = '{seconds:g}s'")
