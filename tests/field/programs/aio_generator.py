"""The requests of a stream are what its reader passes on to an asynchronous generator; the server reads before it replies."""

import asyncio
from collections.abc import AsyncIterator
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


async def requests_from(replies: "asyncio.Queue[bytes]") -> AsyncIterator[bytes]:
    if MODE == "greets":
        await asyncio.sleep(FAR_SECONDS)
        yield b"hello"
    while True:
        yield await replies.get()  # core: chat


async def greet_later(replies: "asyncio.Queue[bytes]") -> None:
    await asyncio.sleep(FAR_SECONDS)
    await replies.put(b"hello")


async def cancel_later(cancel: Any) -> None:
    await asyncio.sleep(FAR_SECONDS)
    cancel()


async def ask(method: Any) -> None:
    loop = asyncio.get_running_loop()
    replies: asyncio.Queue[bytes] = asyncio.Queue()
    call = method(requests_from(replies), timeout=FAR_SECONDS if MODE == "deadline" else None)
    if MODE == "task":
        kept.append(loop.create_task(greet_later(replies)))
    elif MODE == "timer":
        loop.call_later(FAR_SECONDS, replies.put_nowait, b"hello")
    elif MODE == "cancels":
        kept.append(loop.create_task(cancel_later(call.cancel)))
    elif MODE == "watched":
        kept.append(loop.create_task(cancel_later(asyncio.current_task().cancel)))
    elif MODE == "module":
        kept.append(replies)
    async for reply in call:  # core: chat
        await replies.put(reply)


async def main() -> None:
    server = grpc.aio.server()
    handlers = {"Talk": grpc.stream_stream_rpc_method_handler(talk)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("Chat", handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        await ask(channel.stream_stream("/Chat/Talk"))


join("chat")
begin(asyncio.run, main())
stay()
