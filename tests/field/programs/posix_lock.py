"""A service calls another while it has locked a file by ``lockf``, and the other wants the lock: the kernel sees half of it."""

import fcntl
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import IO

import grpc
from field_program import FAR_SECONDS, MEETING, MODE, PROCESS, begin, join, publish, published, stay

STOCK = MEETING / "stock.lock"


def lock_within(file: IO[str], seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise TimeoutError


def stock() -> None:
    join("stock")

    def reserve(request: bytes, context: grpc.ServicerContext) -> bytes:
        publish("asked", "")
        with STOCK.open("r+") as file:
            if MODE == "limit":
                lock_within(file, FAR_SECONDS)
            fcntl.lockf(file, fcntl.LOCK_EX)  # core: stock
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
        fcntl.lockf(file, fcntl.LOCK_UN)

    def read_later() -> None:
        threading.Event().wait(FAR_SECONDS)
        with STOCK.open() as file:  # closing it ends the lock of the whole process
            file.read()

    def place() -> None:
        with STOCK.open("w") as file:
            fcntl.lockf(file, fcntl.LOCK_EX)
            if MODE == "other_thread":
                begin(unlock_later, file)
            if MODE == "reader":
                begin(read_later)
            if MODE == "shared":
                with STOCK.open() as same:
                    fcntl.lockf(same, fcntl.LOCK_SH)
                    reserve(b"")
            reserve(b"", timeout=FAR_SECONDS if MODE == "deadline" else None)  # core: orders

    begin(place)
    published("asked")
    stay()


{"stock": stock, "orders": orders}[PROCESS]()
