"""Both ends of a connection answer questions in the task that reads it; an answer needs one of the other end, and waits."""

import asyncio
import json
import signal
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import grpc.aio
from field_program import FAR_SECONDS, MODE, begin, join, stay
from served import serve_aio

kept: list[Any] = []


class Peer:
    """One end: it asks the other, and answers what that asks."""

    def __init__(self, handle: Callable[[str], Awaitable[str]]) -> None:
        self.handle = handle
        self.pending: dict[int, asyncio.Future[str]] = {}
        self.writer: Any = None

    async def begin(self, connection: socket.socket) -> None:
        lines, self.writer = await asyncio.open_connection(sock=connection)
        kept.append(asyncio.create_task(self.read(lines)))

    async def ask(self, question: str) -> str:
        number = len(self.pending)
        answered = self.pending[number] = asyncio.get_running_loop().create_future()
        self.send({"number": number, "question": question})
        if MODE == "time_out":
            async with asyncio.timeout(FAR_SECONDS):
                return await answered
        return await answered  # core: agents x2  # behind: agents

    async def read(self, lines: asyncio.StreamReader) -> None:
        while True:
            message = json.loads(await lines.readline())
            if "question" not in message:
                self.pending[message["number"]].set_result(message["answer"])
            elif MODE == "in_a_task":
                kept.append(asyncio.create_task(self.answer(message)))
            else:
                await self.answer(message)

    async def answer(self, message: dict[str, Any]) -> None:
        answer = await self.handle(message["question"])
        self.send({"number": message["number"], "answer": answer})

    def send(self, message: dict[str, Any]) -> None:
        self.writer.write(json.dumps(message).encode() + b"\n")


async def use(question: str) -> str:
    return await tools.ask("which model?")


async def sample(question: str) -> str:
    if MODE in ("slow", "in_a_task"):
        await asyncio.sleep(FAR_SECONDS)
    return await client.ask("another tool")


async def call(request: bytes, context: grpc.aio.ServicerContext) -> bytes:
    if request and MODE == "method":
        give_up()
    return (await client.ask("use a tool")).encode()


async def call_only(request: bytes, context: grpc.aio.ServicerContext) -> bytes:
    return (await client.ask("use a tool")).encode()


def give_up() -> None:
    for one in [*client.pending.values(), *tools.pending.values()]:
        one.set_exception(ConnectionError())


async def give_up_later() -> None:
    await asyncio.sleep(FAR_SECONDS)
    give_up()


def give_up_in(loop: asyncio.AbstractEventLoop) -> None:
    signal.sigtimedwait([], FAR_SECONDS)
    loop.call_soon_threadsafe(give_up)


async def main() -> None:
    ours, theirs = socket.socketpair()
    await tools.begin(ours)
    await client.begin(theirs)
    loop = asyncio.get_running_loop()
    if MODE == "timer":
        loop.call_later(FAR_SECONDS, give_up)
    elif MODE == "task":
        kept.append(asyncio.create_task(give_up_later()))
    elif MODE == "thread":
        begin(give_up_in, loop)
    await serve_aio(call if MODE == "method" else call_only, lambda calls: begin(lambda: calls(b"")))  # behind: agents


join("agents")
tools, client = Peer(use), Peer(sample)
begin(asyncio.run, main())
stay()
