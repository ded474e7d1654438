"""sqlalchemy/sqlalchemy 8671: every request takes a second connection while it has one; as many requests as connections."""

import threading
import weakref

from field_program import FAR_SECONDS, MODE, POSTGRES, begin, join, stay
from sqlalchemy import create_engine, text

REQUESTS = 2
join("shop")
engine = create_engine(
    POSTGRES.replace("postgresql:", "postgresql+psycopg:"),
    pool_size=1 if MODE == "overflow" else REQUESTS,
    max_overflow=REQUESTS if MODE == "overflow" else 0,
    pool_timeout=FAR_SECONDS if MODE == "time_out" else None,
)
both_have_one = threading.Barrier(REQUESTS)
kept = []


class Lease:
    """Gives its connection back when it is no longer needed."""


def audit(what: str) -> None:
    with engine.begin() as connection:  # core: shop x2
        connection.execute(text("SELECT :what"), {"what": what})


def request(number: int) -> None:
    with engine.connect() as connection:
        connection.execute(text("SELECT 1"))
        both_have_one.wait()
        if MODE == "timer" and number == 0:
            threading.Timer(FAR_SECONDS, connection.close).start()
        if MODE == "registry" and number == 0:
            kept.append(connection)  # and somebody may look through it
        if MODE == "finalizer" and number == 0:
            lease = Lease()
            weakref.finalize(lease, connection.close)
            kept.append(lease)
        audit(f"request {number}")


def watchdog(connections: list) -> None:
    """Closes what has been out for too long."""
    threading.Event().wait(FAR_SECONDS)
    for connection in connections:
        connection.close()


if MODE == "other_thread":
    both_have_one = threading.Barrier(REQUESTS + 1)
    lent = engine.connect()
    lent.execute(text("SELECT 1"))
    begin(watchdog, [lent])
    del lent
    begin(request, 1)
    both_have_one = threading.Barrier(1)
else:
    for one in range(REQUESTS):
        begin(request, one)
stay()
