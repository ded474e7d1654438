"""The first caller of a key computes it while the others await it; the computation asks the service, which needs the key."""

import asyncio
from typing import Any

import grpc
import grpc.aio
from field_program import FAR_SECONDS, MODE, begin, join, stay

LIMIT = FAR_SECONDS if MODE == "deadline" else None
PARTS = {b"engine": b"valve", b"valve": b"" if MODE == "slow" else b"engine"}


async def result_of(flight: "asyncio.Future[bytes]") -> bytes:
    return await asyncio.shield(flight)  # core: prices


async def result_of_unshielded(flight: "asyncio.Future[bytes]") -> bytes:
    return await flight


if MODE == "unshielded":
    result_of = result_of_unshielded


class Prices:
    """Computes each price once at a time."""

    def __init__(self) -> None:
        self._flights: dict[bytes, asyncio.Future[bytes]] = {}
        self.ask: Any = None

    async def price(self, part: bytes, context: Any) -> bytes:
        flight = self._flights.get(part)
        if flight is not None:
            if MODE == "time_out":
                async with asyncio.timeout(FAR_SECONDS):
                    return await asyncio.shield(flight)
            return await result_of(flight)
        flight = self._flights[part] = asyncio.get_running_loop().create_future()
        try:
            found = await self.compute(part)
            flight.set_result(found)
            return found
        finally:
            del self._flights[part]

    async def compute(self, part: bytes) -> bytes:
        other = PARTS[part]
        if not other:
            await asyncio.sleep(FAR_SECONDS)
        return bytes(await self.ask(other, timeout=LIMIT))  # core: prices x2


async def main() -> None:
    prices = Prices()
    server = grpc.aio.server()
    handlers = {"Price": grpc.unary_unary_rpc_method_handler(prices.price)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("Prices", handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    call = grpc.insecure_channel(f"127.0.0.1:{port}").unary_unary("/Prices/Price")
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        prices.ask = channel.unary_unary("/Prices/Price")
        begin(lambda: call(b"engine"))  # behind: prices
        await server.wait_for_termination()


join("prices")
begin(asyncio.run, main())
stay()
