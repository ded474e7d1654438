"""Widely known: a call waits for its helper, whose own call comes back to the server, which has no free worker."""

import threading
from concurrent import futures

import grpc
from field_program import FAR_SECONDS, MODE, PROCESS, begin, join, meet, publish, published, stay

if PROCESS == "stock":
    join("stock")
    calls_back = grpc.insecure_channel(published("orders")).unary_unary("/s/Price")

    def reserve(request: bytes, _: grpc.ServicerContext) -> bytes:
        """Asks for the price first."""
        return bytes(calls_back(request))  # core: stock

    handlers = {"Reserve": grpc.unary_unary_rpc_method_handler(reserve)}
else:
    join("orders")

    def price(request: bytes, _: grpc.ServicerContext) -> bytes:
        """Knows it by heart."""
        return request

    def place(request: bytes, _: grpc.ServicerContext) -> bytes:
        """Has the stock reserved by a thread of its own, and waits for that."""
        reserved = threading.Event()

        def reserve() -> None:
            reserves(request, timeout=FAR_SECONDS if MODE == "deadline" else None)  # core: orders
            reserved.set()

        begin(reserve)
        reserved.wait(FAR_SECONDS if MODE == "time_out" else None)  # core: orders
        return request

    handlers = {"Place": grpc.unary_unary_rpc_method_handler(place), "Price": grpc.unary_unary_rpc_method_handler(price)}


def ask() -> None:
    """Places one order."""
    places(b"")  # behind: orders


server = grpc.server(futures.ThreadPoolExecutor(2 if MODE == "one_more" else 1))
server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("s", handlers),))
port = server.add_insecure_port("127.0.0.1:0")
server.start()
publish(PROCESS, f"127.0.0.1:{port}")
meet("orders", "stock")
if PROCESS == "orders":
    reserves = grpc.insecure_channel(published("stock")).unary_unary("/s/Reserve")
    places = grpc.insecure_channel(f"127.0.0.1:{port}").unary_unary("/s/Place")
    begin(ask)
stay()
