"""psycopg/psycopg 810: a deadlock in the pool that a timeout ends. Here: nested ``connection()``, with the default timeout."""

import threading

from field_program import FAR_SECONDS, MODE, POSTGRES, begin, join, stay
from psycopg_pool import ConnectionPool

THREADS = 2
join("worker")
pool = ConnectionPool(POSTGRES, min_size=THREADS, max_size=THREADS + 1 if MODE == "grows" else THREADS, open=True)
pool.wait()
all_have_one = threading.Barrier(THREADS)


def work(number: int) -> None:
    with pool.connection() as connection:
        connection.execute("SELECT 1")
        all_have_one.wait()
        if MODE == "timer":
            threading.Timer(FAR_SECONDS, pool.putconn, [connection]).start()
        with pool.connection() as other:  # core: worker x2
            other.execute("SELECT 2")


def close_later() -> None:
    threading.Event().wait(FAR_SECONDS)
    pool.close()


for one in range(THREADS):
    begin(work, one)
if MODE == "closed":
    begin(close_later)
stay()
