"""Widely known: handlers call an asynchronous client on a loop of its own, whose thread has ended."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
from field_program import FAR_SECONDS, MODE, begin, join, stay


class Client:
    """An asynchronous client for synchronous code."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self) -> None:
        self.loop.run_forever()
        if MODE == "runs_again":
            threading.Event().wait(FAR_SECONDS)
            self.loop.run_forever()

    async def fetch(self) -> bytes:
        if MODE == "slow":
            await asyncio.sleep(FAR_SECONDS)
        return b"price"

    def get(self) -> bytes:
        future = asyncio.run_coroutine_threadsafe(self.fetch(), self.loop)
        return future.result(FAR_SECONDS if MODE == "patience" else None)  # core: prices

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        if MODE != "runs_again":
            self.thread.join()


class Prices:
    """The methods of the server."""

    def __init__(self) -> None:
        self.client = Client()

    def get(self, request: bytes, context: Any) -> bytes:
        return self.client.get()

    def flush(self, request: bytes, context: Any) -> bytes:
        self.client.loop.run_until_complete(self.client.fetch())
        return request


def main() -> None:
    prices = Prices()
    methods = {"Get": prices.get, "Flush": prices.flush} if MODE == "method" else {"Get": prices.get}
    handlers = {name: grpc.unary_unary_rpc_method_handler(one) for name, one in methods.items()}
    server = grpc.server(ThreadPoolExecutor(2))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("shop.Prices", handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    if MODE != "slow":
        prices.client.close()
    del prices
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        channel.unary_unary("/shop.Prices/Get")(b"")  # behind: prices


join("prices")
begin(main)
stay()
