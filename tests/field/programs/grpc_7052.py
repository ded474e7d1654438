"""grpc/grpc 7052: a handler calls a method of its own server, all of whose threads run such handlers."""

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
from field_program import FAR_SECONDS, MODE, begin, join, stay

WORKERS = 2
ready_to_call = threading.Barrier(WORKERS)


class Greeter:
    """Both methods are of the same server."""

    own: Any = None

    def hello(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        ready_to_call.wait()
        if MODE == "deadline":
            return bytes(self.own(request, timeout=FAR_SECONDS))
        return bytes(self.own(request))  # core: greeter x2

    def name(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        return request


def ask(address: str) -> None:
    with grpc.insecure_channel(address) as channel:
        channel.unary_unary("/Greeter/Hello")(b"")  # behind: greeter x2


def serve(greeter: Greeter, workers: int) -> str:
    handlers: dict[str, Any] = {
        "Hello": grpc.unary_unary_rpc_method_handler(greeter.hello),
        "Name": grpc.unary_unary_rpc_method_handler(greeter.name),
    }
    server = grpc.server(ThreadPoolExecutor(workers))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("Greeter", handlers),))
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    SERVERS.append(server)
    return address


SERVERS: list[grpc.Server] = []
join("greeter")
greeter = Greeter()
address = serve(greeter, WORKERS + 1 if MODE == "one_more" else WORKERS)
other = serve(greeter, 1) if MODE == "another_server" else address
greeter.own = grpc.insecure_channel(other).unary_unary("/Greeter/Name")
for _ in range(WORKERS):
    begin(ask, address)
stay()
