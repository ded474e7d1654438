"""A handler awaits the device's answer to a request that it has registered; the task that reads the answers has failed."""

import asyncio
import itertools
from typing import Any

import grpc
import grpc.aio
from field_program import FAR_SECONDS, MODE, begin, join, stay


class Device:
    """Its requests, by number, and its answers."""

    def __init__(self) -> None:
        self._pending: dict[int, asyncio.Future[bytes]] = {}
        self._numbers = itertools.count()
        self.reader: Any = None

    async def read(self) -> None:
        await asyncio.sleep(FAR_SECONDS if MODE == "slow" else 0.5)
        if MODE != "slow":
            raise ConnectionError("the device has gone")
        self._pending.popitem()[1].set_result(b"")

    async def ask(self, request: bytes, context: Any) -> bytes:
        number = next(self._numbers)
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._pending[number] = answer
        if MODE == "limit":
            async with asyncio.timeout(FAR_SECONDS):
                return await answer
        return await answer  # core: devices

    def fail(self) -> None:
        for answer in self._pending.values():
            answer.set_exception(ConnectionError("reset"))

    async def reset(self, request: bytes, context: Any) -> bytes:
        self.fail()
        return b""


async def main() -> None:
    device = Device()
    server = grpc.aio.server()
    handlers = {"Ask": grpc.unary_unary_rpc_method_handler(device.ask)}
    if MODE == "reset":
        handlers["Reset"] = grpc.unary_unary_rpc_method_handler(device.reset)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("Devices", handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    if MODE == "timer":
        asyncio.get_running_loop().call_later(FAR_SECONDS, device.fail)
    await server.start()
    device.reader = asyncio.create_task(device.read())
    call = grpc.insecure_channel(f"127.0.0.1:{port}").unary_unary("/Devices/Ask")
    begin(lambda: call(b""))  # behind: devices
    await server.wait_for_termination()


join("devices")
begin(asyncio.run, main())
stay()
