"""A consumer waits until all items of its queue are done, one of which it has in hand itself."""

import asyncio

import grpc.aio
from field_program import FAR_SECONDS, MODE, begin, join, stay
from served import Call, serve_aio


async def consume(items: "asyncio.Queue[int]") -> None:
    while True:
        await items.get()
        if MODE == "slow":
            await asyncio.sleep(FAR_SECONDS)
        if MODE == "limit":
            await asyncio.wait_for(items.join(), FAR_SECONDS)
        await items.join()  # core: etl
        items.task_done()


async def finish_later(items: "asyncio.Queue[int]") -> None:
    await asyncio.sleep(FAR_SECONDS)
    items.task_done()


async def load(request: bytes, context: "grpc.aio.ServicerContext[bytes, bytes]") -> bytes:
    items: asyncio.Queue[int] = asyncio.Queue()
    items.put_nowait(1)
    consumer = asyncio.create_task(consume(items))
    if MODE == "another":
        asyncio.create_task(finish_later(items)).add_done_callback(print)
    await items.join()  # core: etl
    consumer.cancel()
    return b""


def client(call: Call) -> None:
    begin(lambda: call(b""))  # behind: etl


join("etl")
begin(asyncio.run, serve_aio(load, client))
stay()
