"""A handler reads a download from a session with one connection, and makes a request with the same session for each part."""

import asyncio
from typing import Any

import aiohttp
import aiohttp.web
import grpc
import grpc.aio
from field_program import FAR_SECONDS, MODE, begin, join, stay

BODY = b"x" * 5_000_000
"""Larger than any buffer: the response is unfinished until it is read."""


class Files:
    """Its handlers share a session."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self.session = session
        self.url = url
        self.running: set[Any] = set()

    async def copy(self, request: bytes, context: Any) -> bytes:
        if MODE == "may_cancel":
            self.running.add(asyncio.current_task())
        async with self.session.get(self.url) as whole:
            async for _ in whole.content.iter_chunked(1000):
                if MODE == "slow":
                    await asyncio.sleep(FAR_SECONDS)
                async with self.session.get(self.url) as part:  # core: files
                    await part.read()
        return b""

    async def end(self, request: bytes, context: Any) -> bytes:
        for task in self.running:
            task.cancel()
        return b""


async def download(request: Any) -> Any:
    return aiohttp.web.Response(body=BODY)


async def close_later(session: aiohttp.ClientSession) -> None:
    await asyncio.sleep(FAR_SECONDS)
    await session.close()


async def main() -> None:
    application = aiohttp.web.Application()
    application.router.add_get("/file", download)
    runner = aiohttp.web.AppRunner(application)
    await runner.setup()
    site = aiohttp.web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    timeout = aiohttp.ClientTimeout(total=FAR_SECONDS if MODE == "limit" else None)
    session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=1), timeout=timeout)
    closing = asyncio.create_task(close_later(session)) if MODE == "closed" else None
    files = Files(session, f"http://127.0.0.1:{runner.addresses[0][1]}/file")
    server = grpc.aio.server()
    handlers = {"Copy": grpc.unary_unary_rpc_method_handler(files.copy)}
    if MODE == "may_cancel":
        handlers["End"] = grpc.unary_unary_rpc_method_handler(files.end)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("Files", handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    call = grpc.insecure_channel(f"127.0.0.1:{port}").unary_unary("/Files/Copy")
    begin(lambda: call(b""))  # behind: files
    await server.wait_for_termination()
    assert closing is None or not closing.done()


join("files")
begin(asyncio.run, main())
stay()
