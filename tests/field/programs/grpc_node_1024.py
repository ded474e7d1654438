"""grpc/grpc-node 1024: a server with one event loop calls another without giving up the loop, and that calls back."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import grpc.aio
from field_program import FAR_SECONDS, MODE, PROCESS, begin, join, publish, published, stay

WORKERS = 4
calls: dict[str, Any] = {}


def handlers(service: str, **methods: Any) -> Any:
    table: dict[str, Any] = {name: grpc.unary_unary_rpc_method_handler(method) for name, method in methods.items()}
    return grpc.method_handlers_generic_handler(service, table)


async def order(request: bytes, context: Any) -> bytes:
    if MODE == "in_a_thread":
        return await asyncio.to_thread(calls["charge"], request)
    return bytes(calls["charge"](request))  # core: shop


async def price(request: bytes, context: Any) -> bytes:
    if MODE == "in_a_thread":
        await asyncio.sleep(FAR_SECONDS)
    return request


def charge(request: bytes, context: grpc.ServicerContext) -> bytes:
    if MODE == "deadline":
        return bytes(calls["price"](request, timeout=FAR_SECONDS))
    return bytes(calls["price"](request))  # core: bank


async def serve_shop() -> None:
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((handlers("Shop", Order=order, Price=price, Open=opened),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    publish("shop", f"127.0.0.1:{port}")
    await server.wait_for_termination()  # behind: shop


async def opened(request: bytes, context: Any) -> bytes:
    return request


def ask() -> None:
    with grpc.insecure_channel(published("shop")) as channel:
        channel.unary_unary("/Shop/Order")(b"")  # behind: shop


join(PROCESS)
if PROCESS == "shop":
    begin(asyncio.run, serve_shop())
    calls["charge"] = grpc.insecure_channel(published("bank")).unary_unary("/Bank/Charge")
    published("called")
    begin(ask)
else:
    server = grpc.server(ThreadPoolExecutor(WORKERS))
    server.add_generic_rpc_handlers((handlers("Bank", Charge=charge),))
    publish("bank", f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}")
    server.start()
    shop = grpc.insecure_channel(published("shop"))
    shop.unary_unary("/Shop/Open")(b"")
    calls["price"] = shop.unary_unary("/Shop/Price")
    publish("called", "")
stay()
