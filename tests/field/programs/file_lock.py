"""A service calls another while it has locked a file, and the other wants the lock; neither the kernel nor gRPC sees that."""

import fcntl
import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import grpc
from field_program import FAR_SECONDS, MEETING, MODE, PROCESS, begin, end_with_parent, join, publish, published, stay

STOCK = MEETING / "stock.lock"


def lock_within(file: IO[str], seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(0.05)
        else:
            return
    raise TimeoutError


@contextmanager
def locked(path: Path) -> Iterator[IO[str]]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        if MODE == "limit" and PROCESS == "stock":
            lock_within(file, FAR_SECONDS)
        else:
            fcntl.flock(file, fcntl.LOCK_SH if MODE == "shared" and PROCESS == "orders" else fcntl.LOCK_EX)  # core: stock
        yield file


def stock() -> None:
    join("stock")

    def reserve(request: bytes, context: grpc.ServicerContext) -> bytes:
        publish("asked", "")
        with locked(STOCK):
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

    def unlock_later(file: IO[str]) -> None:
        threading.Event().wait(FAR_SECONDS)
        fcntl.flock(file, fcntl.LOCK_UN)

    def unlock_in_child(file: IO[str]) -> None:
        if os.fork() == 0:
            end_with_parent()
            time.sleep(FAR_SECONDS)
            fcntl.flock(file, fcntl.LOCK_UN)
            os._exit(0)

    def place() -> None:
        with locked(STOCK) as file:
            if MODE == "other_thread":
                begin(unlock_later, file)
            if MODE == "child":
                unlock_in_child(file)
            reserve(b"", timeout=FAR_SECONDS if MODE == "deadline" else None)  # core: orders

    begin(place)
    published("asked")
    stay()


{"stock": stock, "orders": orders}[PROCESS]()
