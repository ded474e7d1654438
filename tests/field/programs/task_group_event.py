"""A task of a group waits for an event that is set once the group has ended, and the group ends with its tasks."""

import asyncio

import grpc.aio
from field_program import FAR_SECONDS, MODE, begin, join, stay
from served import Call, serve_aio


async def deliver(opened: asyncio.Event) -> None:
    if MODE == "limit":
        await asyncio.wait_for(opened.wait(), FAR_SECONDS)
    await opened.wait()  # core: mail


async def open_later(opened: asyncio.Event) -> None:
    await asyncio.sleep(FAR_SECONDS)
    opened.set()


async def send(request: bytes, context: "grpc.aio.ServicerContext[bytes, bytes]") -> bytes:
    opened = asyncio.Event()
    async with asyncio.TaskGroup() as group:  # core: mail
        group.create_task(deliver(opened))
        if MODE == "another":
            group.create_task(open_later(opened))
        if MODE == "inside":
            await open_later(opened)
    opened.set()
    return b""


def client(call: Call) -> None:
    begin(lambda: call(b""))  # behind: mail


join("mail")
begin(asyncio.run, serve_aio(send, client))
stay()
