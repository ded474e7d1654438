"""A gRPC server with one method that a program of the field catalogue gives: the service in which a deadlock happens."""

from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import grpc.aio

Call = Callable[..., bytes]
_kept: list[Any] = []
"""The servers: one stops when it is collected."""


def serve(
    handler: Callable[[bytes, grpc.ServicerContext], bytes], workers: int = 4, port_for: Callable[[int], Any] | None = None
) -> Call:
    """Serve ``handler`` on loopback by a pool of ``workers`` threads. Returns the method as its clients call it.

    ``port_for`` gets the port.
    """
    server = grpc.server(ThreadPoolExecutor(workers))
    server.add_generic_rpc_handlers((_named(handler),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    _kept.append(server)
    if port_for is not None:
        port_for(port)
    return call_at(port)


async def serve_aio(handler: Callable[[bytes, Any], Awaitable[bytes]], clients: Callable[[Call], Any]) -> None:
    """Serve ``handler`` on the running loop until the program ends; ``clients`` gets the method once it is served."""
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((_named(handler),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    clients(call_at(port))
    await server.wait_for_termination()


def call_at(port: int) -> Call:
    """The method of the server at this port."""
    call: Call = grpc.insecure_channel(f"127.0.0.1:{port}").unary_unary("/Field/Run")
    return call


def _named(handler: Any) -> Any:
    return grpc.method_handlers_generic_handler("Field", {"Run": grpc.unary_unary_rpc_method_handler(handler)})
