"""A handler runs a coroutine through async_to_sync; the coroutine calls the same server, which has no other worker."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import grpc
import grpc.aio
from asgiref.sync import async_to_sync
from field_program import FAR_SECONDS, MODE, begin, join, stay

join("site")
server = grpc.server(ThreadPoolExecutor(2 if MODE == "worker" else 1))
port = server.add_insecure_port("127.0.0.1:0")


def cancel_later(task: "asyncio.Task[object]", loop: asyncio.AbstractEventLoop) -> None:
    threading.Event().wait(FAR_SECONDS)
    loop.call_soon_threadsafe(task.cancel)


async def fetch() -> bytes:
    if MODE == "cancelled":
        begin(cancel_later, asyncio.current_task(), asyncio.get_running_loop())
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        call = channel.unary_unary("/Site/Fetch")(b"", timeout=FAR_SECONDS if MODE == "deadline" else None)
        if MODE == "limit":
            return await asyncio.wait_for(call, FAR_SECONDS)
        return await call  # core: site


def render(request: bytes, context: grpc.ServicerContext) -> bytes:
    return async_to_sync(fetch)()  # core: site


def answer(request: bytes, context: grpc.ServicerContext) -> bytes:
    threading.Event().wait(FAR_SECONDS)
    return b""


handlers = {
    "Render": grpc.unary_unary_rpc_method_handler(render),
    "Fetch": grpc.unary_unary_rpc_method_handler(answer),
}
server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("Site", handlers),))
server.start()
begin(lambda: grpc.insecure_channel(f"127.0.0.1:{port}").unary_unary("/Site/Render")(b""))  # behind: site
stay()
