"""A task passes the replies of a stream on to another, which writes them as requests; the server reads before it replies."""

import asyncio
from typing import Any

import grpc
import grpc.aio
from field_program import FAR_SECONDS, MODE, begin, join, stay

kept: list[Any] = []


async def talk(requests: Any, context: Any) -> None:
    if MODE == "slow":
        await asyncio.sleep(FAR_SECONDS)
    async for request in requests:  # core: chat
        await context.write(request)


async def feed(call: Any, replies: "asyncio.Queue[bytes]") -> None:
    while True:
        await call.write(await replies.get())  # core: chat


async def greet_later(replies: "asyncio.Queue[bytes]") -> None:
    await asyncio.sleep(FAR_SECONDS)
    await replies.put(b"hello")


async def ask(call: Any) -> None:
    replies: asyncio.Queue[bytes] = asyncio.Queue()
    kept.append(asyncio.create_task(feed(call, replies)))
    if MODE == "greets":
        kept.append(asyncio.create_task(greet_later(replies)))
    elif MODE == "timer":
        asyncio.get_running_loop().call_later(FAR_SECONDS, replies.put_nowait, b"hello")
    async for reply in call:  # core: chat
        await replies.put(reply)


async def main() -> None:
    server = grpc.aio.server()
    handlers = {"Talk": grpc.stream_stream_rpc_method_handler(talk)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("Chat", handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        await ask(channel.stream_stream("/Chat/Talk")())


join("chat")
begin(asyncio.run, main())
stay()
