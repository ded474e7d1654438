"""A client awaits the reply to its upload without having said that the upload is complete; the server reads on."""

import asyncio
from typing import Any

import grpc
import grpc.aio
from field_program import FAR_SECONDS, MODE, begin, join, stay

kept: list[Any] = []


async def put(requests: Any, context: Any) -> bytes:
    size = 0
    async for request in requests:  # core: files
        size += len(request)
    return str(size).encode()


async def complete_later(call: Any) -> None:
    await asyncio.sleep(FAR_SECONDS)
    await call.done_writing()


async def upload(call: Any) -> None:
    for _ in range(3):
        await call.write(b"part")
    if MODE == "later":
        kept.append(asyncio.create_task(complete_later(call)))
    elif MODE == "timer":
        asyncio.get_running_loop().call_later(FAR_SECONDS, call.cancel)
    if MODE == "limit":
        await asyncio.wait_for(call, FAR_SECONDS)
    print(await call)  # core: files


async def main() -> None:
    server = grpc.aio.server()
    handlers = {"Put": grpc.stream_unary_rpc_method_handler(put)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("Files", handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        await upload(channel.stream_unary("/Files/Put")(timeout=FAR_SECONDS if MODE == "deadline" else None))


join("files")
begin(asyncio.run, main())
stay()
