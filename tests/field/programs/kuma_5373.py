"""kumahq/kuma 5373: both ends of a multiplexed stream write more than its windows hold, and read only afterwards."""

import asyncio

from field_program import FAR_SECONDS, MODE, join, ready, service

RESOURCES = bytes(64 << 20)
agent = join("mesh")
ZONE, GLOBAL = f"{service('mesh')}:zone", f"{service('mesh')}:global"
"""Who reads at either end: by that alone the other's writes go on."""


async def sync(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, own: str, other: str) -> None:
    """One end: it sends all of its resources, and then reads the other's."""
    agent.answers(own)
    writer.write(RESOURCES)
    with agent.waiting_for(other):
        if MODE == "time_out":
            await asyncio.wait_for(writer.drain(), FAR_SECONDS)
        else:
            await writer.drain()  # core: mesh x2
    await reader.readexactly(len(RESOURCES))


async def read_later(reader: asyncio.StreamReader) -> None:
    """A task of its own reads, when it comes to that."""
    agent.answers(ZONE)
    await asyncio.sleep(FAR_SECONDS)
    await reader.readexactly(len(RESOURCES))


async def serve_zone(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await sync(reader, writer, GLOBAL, ZONE)


async def main() -> None:
    server = await asyncio.start_server(serve_zone, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    if MODE == "reads_too":
        running.append(asyncio.create_task(read_later(reader)))
        await asyncio.sleep(0)
    running.append(asyncio.create_task(sync(reader, writer, ZONE, GLOBAL)))
    del reader, writer
    await asyncio.sleep(0.3)
    ready()
    await asyncio.Event().wait()


running: list[asyncio.Task[None]] = []
asyncio.run(main())
