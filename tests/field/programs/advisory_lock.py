"""A service calls another while its session has an advisory lock, outside any transaction, and the other wants the lock."""

import importlib
import os
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import grpc
import psycopg
from field_program import FAR_SECONDS, MODE, POSTGRES, PROCESS, begin, join, publish, published, ready, service, stay

MIGRATION = 4711


def probe() -> None:
    """The probe of this run's database, as an operator starts it."""
    ready()
    os.execv(
        sys.executable, [sys.executable, "-m", "detector", "probe", "postgres", POSTGRES, "--instance", service("postgres")]
    )


@contextmanager
def locked() -> Iterator[psycopg.Connection]:
    with psycopg.connect(POSTGRES, autocommit=True) as connection:
        if MODE == "lock_time_out" and PROCESS == "stock":
            importlib.import_module("sessions.session_lock_time_out").bound(connection, FAR_SECONDS)
        if PROCESS == "stock":
            publish("asked", "")
        connection.execute("SELECT pg_advisory_lock(%s)", [MIGRATION])  # core: stock
        yield connection
        connection.execute("SELECT pg_advisory_unlock(%s)", [MIGRATION])


def stock() -> None:
    join("stock")
    if MODE == "idle_time_out":
        with psycopg.connect(POSTGRES, autocommit=True) as setup:
            importlib.import_module("sessions.idle_session_time_out").bound(setup, FAR_SECONDS)

    def reserve(request: bytes, context: grpc.ServicerContext) -> bytes:
        with locked():
            return b""

    server = grpc.server(ThreadPoolExecutor(4))
    handlers = {"Reserve": grpc.unary_unary_rpc_method_handler(reserve)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("Stock", handlers),))
    publish("stock", str(server.add_insecure_port("127.0.0.1:0")))
    server.start()
    stay()


def orders() -> None:
    join("orders")
    reserve = grpc.insecure_channel(f"127.0.0.1:{published('stock')}").unary_unary("/Stock/Reserve")

    def unlock_later(connection: psycopg.Connection) -> None:
        threading.Event().wait(FAR_SECONDS)
        connection.execute("SELECT pg_advisory_unlock_all()")

    def place() -> None:
        with locked() as connection:
            if MODE == "other_thread":
                begin(unlock_later, connection)
            if MODE == "unlocked":
                connection.execute("SELECT pg_advisory_unlock(%s)", [MIGRATION])
            reserve(b"", timeout=FAR_SECONDS if MODE == "deadline" else None)  # core: orders

    begin(place)
    published("asked")
    stay()


{"probe": probe, "stock": stock, "orders": orders}[PROCESS]()
