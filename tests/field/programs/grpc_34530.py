"""grpc/grpc 34530: an interceptor awaits the status of a call whose requests are kept until the interceptor has returned."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio
from field_program import FAR_SECONDS, MODE, begin, join, stay


class Metrics(grpc.aio.StreamUnaryClientInterceptor):
    async def intercept_stream_unary(self, continuation: Any, client_call_details: Any, request_iterator: Any) -> Any:
        call = await continuation(client_call_details, request_iterator)
        if MODE == "canceller":
            asyncio.get_running_loop().call_later(FAR_SECONDS, call.cancel)
        if MODE == "limit":
            await asyncio.wait_for(call.code(), FAR_SECONDS)
        print(await call.code())  # core: files
        return call


async def put(requests: Any, context: Any) -> bytes:
    size = 0
    async for request in requests:  # core: files
        size += len(request)
    return str(size).encode()


async def parts() -> AsyncIterator[bytes]:
    yield b"part"
    await asyncio.sleep(FAR_SECONDS)


async def upload(method: Any) -> None:
    if MODE == "iterator":
        print(await method(parts()))
    call = method(timeout=FAR_SECONDS if MODE == "deadline" else None)
    await call.write(b"part")  # core: files
    await call.done_writing()
    print(await call)


async def main() -> None:
    server = grpc.aio.server()
    handlers = {"Put": grpc.stream_unary_rpc_method_handler(put)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("Files", handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", interceptors=[Metrics()]) as channel:
        await upload(channel.stream_unary("/Files/Put"))


join("files")
begin(asyncio.run, main())
stay()
