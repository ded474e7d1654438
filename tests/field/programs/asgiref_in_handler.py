"""Handlers run their blocking code by ``sync_to_async``, which has one thread for all; that code calls the same server."""

import asyncio
import threading
from typing import Any

import grpc
import grpc.aio
from asgiref.sync import SyncToAsync, sync_to_async
from field_program import FAR_SECONDS, MODE, begin, join, stay

ports: list[int] = []
running: set[Any] = set()


def save(request: bytes) -> bytes:
    if MODE == "slow" or (request and MODE == "threads"):
        stop.wait(FAR_SECONDS)
    if request:
        return b"1"
    with grpc.insecure_channel(f"127.0.0.1:{ports[0]}") as channel:
        return channel.unary_unary("/Site/Save")(b"part", timeout=FAR_SECONDS if MODE == "deadline" else None)  # core: site


async def run(request: bytes, context: Any) -> bytes:
    if MODE == "may_cancel":
        running.add(asyncio.current_task())
    if MODE == "limit":
        return await asyncio.wait_for(sync_to_async(save)(request), FAR_SECONDS)
    return await sync_to_async(save, thread_sensitive=MODE != "threads")(request)  # core: site x2


async def end(request: bytes, context: Any) -> bytes:
    for task in running:
        task.cancel()
    return b""


def drop() -> None:
    stop.wait(FAR_SECONDS)
    SyncToAsync.single_thread_executor.shutdown(wait=False, cancel_futures=True)


def drain() -> None:
    stop.wait(FAR_SECONDS)
    SyncToAsync.single_thread_executor._work_queue.get().future.cancel()


async def main() -> None:
    server = grpc.aio.server()
    handlers = {"Save": grpc.unary_unary_rpc_method_handler(run)}
    if MODE == "may_cancel":
        handlers["End"] = grpc.unary_unary_rpc_method_handler(end)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("Site", handlers),))
    ports.append(server.add_insecure_port("127.0.0.1:0"))
    await server.start()
    if MODE == "dropped":
        begin(drop)
    if MODE == "drained":
        begin(drain)
    call = grpc.insecure_channel(f"127.0.0.1:{ports[0]}").unary_unary("/Site/Save")
    begin(lambda: call(b""))  # behind: site
    await server.wait_for_termination()


join("site")
stop = threading.Event()
begin(asyncio.run, main())
stay()
