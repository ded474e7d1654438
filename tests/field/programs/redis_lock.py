"""A service calls another while it has a lock in Redis, and the other wants the lock; neither Redis nor gRPC sees that."""

import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import grpc
import redis
from field_program import FAR_SECONDS, MODE, PROCESS, REDIS, begin, join, publish, published, ready, service, stay

LOCK = "lock:stock"


def probe() -> None:
    """The probe of this run's database, as an operator starts it."""
    ready()
    command = ["probe", "redis", REDIS, "--lock", "lock:*", "--instance", service("redis")]
    os.execv(sys.executable, [sys.executable, "-m", "detector", *command])


def stock() -> None:
    join("stock")
    client = redis.Redis.from_url(REDIS)

    def reserve(request: bytes, context: grpc.ServicerContext) -> bytes:
        publish("asked", "")
        with client.lock(LOCK, blocking_timeout=FAR_SECONDS if MODE == "limit" else None):  # core: stock
            return b""

    def delete_later() -> None:
        threading.Event().wait(FAR_SECONDS)
        client.delete(LOCK)

    if MODE == "deleted":
        begin(delete_later)
    server = grpc.server(ThreadPoolExecutor(4))
    handlers = {"Reserve": grpc.unary_unary_rpc_method_handler(reserve)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("Stock", handlers),))
    publish("stock", str(server.add_insecure_port("127.0.0.1:0")))
    server.start()
    stay()


def orders() -> None:
    join("orders")
    reserve = grpc.insecure_channel(f"127.0.0.1:{published('stock')}").unary_unary("/Stock/Reserve")
    client = redis.Redis.from_url(REDIS)

    def release_later(lock: redis.lock.Lock) -> None:
        threading.Event().wait(FAR_SECONDS)
        lock.release()

    def place() -> None:
        timeout = FAR_SECONDS if MODE == "time_to_live" else None
        with client.lock(LOCK, timeout=timeout, thread_local=MODE != "shared") as lock:
            if MODE == "shared":
                begin(release_later, lock)
            if MODE == "lost":  # it has been deleted, and a stranger has it now
                client.set(LOCK, "of somebody else")
            reserve(b"", timeout=FAR_SECONDS if MODE == "deadline" else None)  # core: orders

    begin(place)
    published("asked")
    stay()


{"probe": probe, "stock": stock, "orders": orders}[PROCESS]()
