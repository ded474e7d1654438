"""A handler on a loop takes the only session out of a queue, and calls its own service, which needs a session."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio
from field_program import FAR_SECONDS, MODE, begin, join, stay


class Site:
    """Its pool is a queue with one session."""

    def __init__(self) -> None:
        self.sessions: asyncio.Queue[str] = asyncio.Queue()
        self.sessions.put_nowait("first")
        self.ask: Any = None

    @asynccontextmanager
    async def session(self) -> AsyncIterator[str]:
        session = await self.sessions.get()  # core: site
        try:
            yield session
        finally:
            await self.sessions.put(session)

    async def render(self, request: bytes, context: Any) -> bytes:
        if MODE == "limit":
            async with asyncio.timeout(FAR_SECONDS), self.session():
                return bytes(await self.ask(b"part"))
        async with self.session():
            if MODE == "slow":
                await asyncio.sleep(FAR_SECONDS)
            return bytes(await self.ask(b"part"))  # core: site

    async def grow(self) -> None:
        await asyncio.sleep(FAR_SECONDS)
        await self.sessions.put("second")


async def main() -> None:
    site = Site()
    server = grpc.aio.server()
    handlers = {"Render": grpc.unary_unary_rpc_method_handler(site.render)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("Site", handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    growing = asyncio.create_task(site.grow()) if MODE == "another" else None
    if MODE == "timer":
        asyncio.get_running_loop().call_later(FAR_SECONDS, site.sessions.put_nowait, "second")
    call = grpc.insecure_channel(f"127.0.0.1:{port}").unary_unary("/Site/Render")
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        site.ask = channel.unary_unary("/Site/Render")
        begin(lambda: call(b""))  # behind: site
        await server.wait_for_termination()
    assert growing is None or not growing.done()


join("site")
begin(asyncio.run, main())
stay()
