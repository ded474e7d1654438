"""Both ends of a stream on event loops read, and would write only afterwards."""

import asyncio
import threading
from typing import Any

import grpc
import grpc.aio
from field_program import FAR_SECONDS, MODE, begin, join, stay

kept: list[Any] = []


async def talk(requests: Any, context: Any) -> None:
    request = await context.read()  # core: chat
    await context.write(request)


async def write_later(call: Any) -> None:
    await asyncio.sleep(FAR_SECONDS)
    await call.write(b"")


def write_from_thread(call: Any, loop: asyncio.AbstractEventLoop) -> None:
    threading.Event().wait(FAR_SECONDS)
    asyncio.run_coroutine_threadsafe(call.write(b""), loop)


async def ask(call: Any) -> None:
    loop = asyncio.get_running_loop()
    if MODE == "task":
        kept.append(loop.create_task(write_later(call)))
    elif MODE == "timer":
        loop.call_later(FAR_SECONDS, lambda: loop.create_task(call.write(b"")))
    elif MODE == "thread":
        begin(write_from_thread, call, loop)
    elif MODE == "module":
        kept.append(call)
    if MODE == "limit":
        await asyncio.wait_for(call.read(), FAR_SECONDS)
    reply = await call.read()  # core: chat
    await call.write(reply)


async def main() -> None:
    server = grpc.aio.server()
    handlers = {"Talk": grpc.stream_stream_rpc_method_handler(talk)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("Chat", handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        await ask(channel.stream_stream("/Chat/Talk")(timeout=FAR_SECONDS if MODE == "deadline" else None))


join("chat")
begin(asyncio.run, main())
stay()
