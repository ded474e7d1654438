"""A handler takes the only connection out of a queue, and calls its own service, which needs a connection."""

import queue
import threading

from field_program import FAR_SECONDS, MODE, begin, join, stay
from served import serve

FAR = threading.Event()
GET_SECONDS = FAR_SECONDS if MODE == "time_out" else None
CALL_SECONDS = FAR_SECONDS if MODE == "deadline" else None


class Connection:
    """A connection to something."""


class Shop:
    """Its pool is a queue, filled once."""

    def __init__(self, size: int) -> None:
        self.connections: queue.LifoQueue[Connection] = queue.LifoQueue()
        for _ in range(size):
            self.connections.put(Connection())

    def order(self, request: bytes, context: object) -> bytes:
        connection = self.connections.get(timeout=GET_SECONDS)  # core: shop
        try:
            if request and MODE in ("one_more", "slow"):
                FAR.wait(FAR_SECONDS)
            return call(b"part", timeout=CALL_SECONDS)  # core: shop
        finally:
            self.connections.put(connection)

    def order_or_grow(self, request: bytes, context: object) -> bytes:
        if request == b"grow":
            self.connections.put(Connection())
        return self.order(request, context)


def grow() -> None:
    FAR.wait(FAR_SECONDS)
    shop.connections.put(Connection())


join("shop")
shop = Shop(2 if MODE == "one_more" else 1)
call = serve(shop.order_or_grow if MODE == "request" else shop.order)
begin(lambda: call(b"part" if MODE == "slow" else b""))  # behind: shop
if MODE == "another":
    begin(grow)
elif MODE == "timer":
    timer = threading.Timer(FAR_SECONDS, shop.connections.put, [Connection()])
    timer.daemon = True
    timer.start()
stay()
