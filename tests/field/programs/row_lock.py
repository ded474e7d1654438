"""A service calls another while it has a row locked, and the other wants the row; neither PostgreSQL nor gRPC sees that."""

import importlib
import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import grpc
import psycopg
from field_program import FAR_SECONDS, MODE, POSTGRES, PROCESS, begin, join, publish, published, ready, service, stay

UPDATE = "UPDATE stock SET count = count - 1 WHERE item = 1"


def probe() -> None:
    """The probe of this run's database, as an operator starts it."""
    ready()
    os.execv(
        sys.executable, [sys.executable, "-m", "detector", "probe", "postgres", POSTGRES, "--instance", service("postgres")]
    )


def stock() -> None:
    join("stock")
    with psycopg.connect(POSTGRES, autocommit=True) as setup:
        setup.execute("CREATE TABLE stock (item int PRIMARY KEY, count int)")
        setup.execute("INSERT INTO stock VALUES (1, 100)")
        if MODE == "idle_time_out":
            importlib.import_module("sessions.idle_time_out").bound(setup, FAR_SECONDS)

    def reserve(request: bytes, context: grpc.ServicerContext) -> bytes:
        with psycopg.connect(POSTGRES) as connection:
            if MODE == "lock_time_out":
                importlib.import_module("sessions.lock_time_out").bound(connection, FAR_SECONDS)
            publish("asked", "")
            connection.execute(UPDATE)  # core: stock
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

    def commit_later(connection: psycopg.Connection) -> None:
        threading.Event().wait(FAR_SECONDS)
        connection.commit()

    def place() -> None:
        with psycopg.connect(POSTGRES, autocommit=MODE == "autocommit") as connection:
            connection.execute(UPDATE)
            if MODE == "other_thread":
                begin(commit_later, connection)
            reserve(b"", timeout=FAR_SECONDS if MODE == "deadline" else None)  # core: orders

    begin(place)
    if MODE != "autocommit":
        published("asked")
    stay()


{"probe": probe, "stock": stock, "orders": orders}[PROCESS]()
