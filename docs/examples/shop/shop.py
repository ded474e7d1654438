"""Two small services, orders and stock, that know nothing of Stilltrue: ``python shop.py orders``, ``python shop.py stock``.

Placing an order calls stock, which calls back to note the reservation. Each serves two calls at a time. One customer at a time
is fine; with two or more at once, both of a service's workers wait for the other service, whose workers wait for them: nothing
crashes, nothing is logged, and no order is ever placed again.

Addresses come from ORDERS_ADDRESS and STOCK_ADDRESS (127.0.0.1:50061 and 127.0.0.1:50062); CUSTOMERS is how many order at once.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from concurrent import futures

import grpc

ADDRESSES = {
    "orders": os.environ.get("ORDERS_ADDRESS", "127.0.0.1:50061"),
    "stock": os.environ.get("STOCK_ADDRESS", "127.0.0.1:50062"),
}
WORKERS = 2
WORK_SECONDS = 0.05

Handler = Callable[[bytes, grpc.ServicerContext], bytes]


def call(service: str, method: str, request: bytes) -> bytes:
    """Call another service, and wait for as long as it takes."""
    return CHANNELS[service].unary_unary(f"/shop.{service.title()}/{method}")(request)


CHANNELS: dict[str, grpc.Channel] = {}


def place(request: bytes, _: grpc.ServicerContext) -> bytes:
    """Orders: reserve, then answer."""
    time.sleep(WORK_SECONDS)
    return call("stock", "Reserve", request)


def note(request: bytes, _: grpc.ServicerContext) -> bytes:
    """Orders: stock says that something is reserved."""
    time.sleep(WORK_SECONDS)
    return request


def reserve(request: bytes, _: grpc.ServicerContext) -> bytes:
    """Stock: take it from the shelf, and tell orders."""
    time.sleep(WORK_SECONDS)
    return call("orders", "Note", request)


SERVICES: dict[str, dict[str, Handler]] = {"orders": {"Place": place, "Note": note}, "stock": {"Reserve": reserve}}


def serve(name: str) -> grpc.Server:
    """Start a service on its address."""
    methods = {method: grpc.unary_unary_rpc_method_handler(handler) for method, handler in SERVICES[name].items()}
    server = grpc.server(futures.ThreadPoolExecutor(WORKERS), options=[("grpc.so_reuseport", 0)])  # one service at a port
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(f"shop.{name.title()}", methods)])
    port = ADDRESSES[name].rpartition(":")[2]
    try:
        server.add_insecure_port(f"0.0.0.0:{port}")
    except RuntimeError:
        sys.exit(f"port {port} is in use: set {name.upper()}_ADDRESS, for both services")
    server.start()
    return server


def order_for_ever() -> None:
    """One customer."""
    number = 0
    while True:
        number += 1
        try:
            call("orders", "Place", str(number).encode())
        except (grpc.RpcError, ValueError):  # a service is restarted, or this one ends
            time.sleep(1)


def main() -> None:
    """Run one of the services until it is ended; stock also brings the customers."""
    name = sys.argv[-1]
    if len(sys.argv) != 2 or name not in ADDRESSES:
        sys.exit("usage: shop.py orders|stock")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    logging.getLogger("grpc").setLevel(logging.CRITICAL)  # no traceback for calls that fail because a service ends
    CHANNELS.update((other, grpc.insecure_channel(address)) for other, address in ADDRESSES.items())
    server = serve(name)
    try:
        if name == "stock":
            grpc.channel_ready_future(CHANNELS["orders"]).result()
            for _ in range(int(os.environ.get("CUSTOMERS", "3"))):
                threading.Thread(target=order_for_ever, daemon=True).start()
        server.wait_for_termination()
    except KeyboardInterrupt:
        server.stop(0)
        for channel in CHANNELS.values():
            channel.close()  # ends the calls of its workers, which Python waits for


if __name__ == "__main__":
    main()
