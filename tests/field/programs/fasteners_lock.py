"""A service calls another within its inter-process lock, and the other wants the same lock."""

import threading
from concurrent.futures import ThreadPoolExecutor

import fasteners
import grpc
from field_program import FAR_SECONDS, MEETING, MODE, PROCESS, begin, join, publish, published, stay

STOCK = MEETING / "stock.lock"


def stock() -> None:
    join("stock")

    def reserve(request: bytes, context: grpc.ServicerContext) -> bytes:
        publish("asked", "")
        lock = fasteners.InterProcessLock(STOCK)
        if MODE == "limit":
            lock.acquire(timeout=FAR_SECONDS)
        with lock:  # core: stock
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

    def release_later(lock: fasteners.InterProcessLock) -> None:
        threading.Event().wait(FAR_SECONDS)
        lock.release()

    def place() -> None:
        lock = fasteners.InterProcessLock(STOCK)
        with lock:
            if MODE == "other_thread":
                begin(release_later, lock)
            reserve(b"", timeout=FAR_SECONDS if MODE == "deadline" else None)  # core: orders

    begin(place)
    published("asked")
    stay()


{"stock": stock, "orders": orders}[PROCESS]()
