"""Tasks send the links that they find into the stream that only they read: all wait for room."""

import math

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from field_program import FAR_SECONDS, MODE, begin, join, stay


async def crawl(send: "MemoryObjectSendStream[int]", receive: "MemoryObjectReceiveStream[int]") -> None:
    async for page in receive:
        for link in range(8):
            if MODE == "limit":
                with anyio.fail_after(FAR_SECONDS):
                    await send.send(page + link)
            else:
                await send.send(page + link)  # core: crawler x2
        if MODE == "unbounded":
            await anyio.sleep(FAR_SECONDS)


async def drain_later(receive: "MemoryObjectReceiveStream[int]") -> None:
    await anyio.sleep(FAR_SECONDS)
    await receive.receive()


async def main() -> None:
    send, receive = anyio.create_memory_object_stream[int](math.inf if MODE == "unbounded" else 4)
    async with anyio.create_task_group() as tasks:  # core: crawler
        for page in range(4):
            await send.send(page)
        for _ in range(2):
            tasks.start_soon(crawl, send, receive)
        if MODE == "drained":
            tasks.start_soon(drain_later, receive)


join("crawler")
begin(anyio.run, main)
stay()
