"""Sessions of a database that the server ends when they are idle outside a transaction for long, as its owner has set."""

import psycopg


def bound(connection: psycopg.Connection, seconds: float) -> None:
    name = connection.info.dbname
    connection.execute(f"ALTER DATABASE {name} SET idle_session_timeout = '{seconds:g}s'")
