"""shizmob/pydle 112: the task that reads a connection runs the handlers, and one of them awaits an answer on it."""

import asyncio
from typing import Any

from field_program import FAR_SECONDS, MODE, begin, join, stay


class Client:
    """A chat client: it asks questions, and handles messages."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.pending: dict[str, asyncio.Future[str]] = {}
        self.handlers: set[asyncio.Task[None]] = set()

    async def whois(self, name: str) -> str:
        answer = self.pending[name] = asyncio.get_running_loop().create_future()
        self.writer.write(f"whois {name}\n".encode())
        if MODE == "limit":
            async with asyncio.timeout(FAR_SECONDS):
                return await answer
        return await answer  # core: chat

    async def on_join(self, name: str) -> None:
        await self.whois(name)

    async def handle_forever(self) -> None:
        while line := (await self.reader.readline()).decode():
            what, name = line.split()
            if what == "join" and MODE == "tasks":
                self.handlers.add(asyncio.create_task(self.on_join(name)))
            elif what == "join":
                await self.on_join(name)
            else:
                self.pending.pop(name).set_result(what)


async def fail_later(pending: "dict[str, asyncio.Future[str]]") -> None:
    await asyncio.sleep(FAR_SECONDS)
    for one in pending.values():
        one.set_exception(ConnectionError())


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"join ada\n")
    while line := await reader.readline():
        if MODE == "tasks":
            await asyncio.sleep(FAR_SECONDS)
        writer.write(line)


async def main() -> None:
    server: Any = await asyncio.start_server(serve, "127.0.0.1", 0)
    client = Client(*await asyncio.open_connection(*server.sockets[0].getsockname()))
    if MODE == "fails":
        helper = asyncio.create_task(fail_later(client.pending))
        await client.handle_forever()
        await helper
    await client.handle_forever()


join("chat")
begin(asyncio.run, main())
stay()
