"""Sessions of a database that the server ends when they are idle in a transaction for long, as its owner has set."""

import psycopg


def bound(connection: psycopg.Connection, seconds: float) -> None:
    name = connection.info.dbname
    connection.execute(f"ALTER DATABASE {name} SET idle_in_transaction_session_timeout = '{seconds:g}s'")
