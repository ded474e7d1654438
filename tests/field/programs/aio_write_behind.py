"""Handlers put into a bounded queue; the task that empties it calls the same server, whose permits the handlers have."""

import asyncio
from typing import Any

import grpc
import grpc.aio
from field_program import FAR_SECONDS, MODE, begin, join, stay


class Journal:
    """Keeps entries for a task that writes them, by calls."""

    def __init__(self) -> None:
        self.entries: asyncio.Queue[bytes] = asyncio.Queue(0 if MODE == "unbounded" else 1)
        self.permits = asyncio.Semaphore(3 if MODE == "permit" else 2)
        self.flushes: Any = None

    async def append(self, request: bytes, context: Any) -> bytes:
        """Keeps a few entries."""
        async with self.permits:
            for _ in range(5):
                if MODE == "time_out":
                    async with asyncio.timeout(FAR_SECONDS):
                        await self.entries.put(request)
                await self.entries.put(request)  # core: ledger x2
            if MODE == "unbounded":
                await asyncio.sleep(FAR_SECONDS)
            return b""

    async def flush(self, request: bytes, context: Any) -> bytes:
        """Writes an entry."""
        async with self.permits:  # core: ledger
            if MODE == "permit":
                await asyncio.sleep(FAR_SECONDS)
            return request

    async def discard(self, request: bytes, context: Any) -> bytes:
        """Forgets an entry."""
        return await self.entries.get() if MODE == "method" else b""

    async def discard_none(self, request: bytes, context: Any) -> bytes:
        """Forgets nothing."""
        return {b"": b""}.get(request, b"")

    async def write(self) -> None:
        """Writes one entry after the other."""
        while True:
            entry = await self.entries.get()
            if MODE == "slow":
                await asyncio.sleep(FAR_SECONDS)
            await self.flushes(entry, timeout=FAR_SECONDS if MODE == "deadline" else None)  # core: ledger

    async def drain_later(self) -> None:
        """Makes room."""
        await asyncio.sleep(FAR_SECONDS)
        await self.entries.get()


async def main() -> None:
    journal = Journal()
    server = grpc.aio.server()
    discards = journal.discard if MODE == "method" else journal.discard_none
    methods = {"Append": journal.append, "Flush": journal.flush, "Discard": discards}
    handlers = {name: grpc.unary_unary_rpc_method_handler(method) for name, method in methods.items()}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("Journal", handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    appends = grpc.insecure_channel(f"127.0.0.1:{port}").unary_unary("/Journal/Append")
    for _ in range(2):
        begin(lambda: appends(b"entry"))  # behind: ledger x2
    while MODE != "unbounded" and len(journal.entries._putters) < 2 and MODE != "time_out":
        await asyncio.sleep(0.01)
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        journal.flushes = channel.unary_unary("/Journal/Flush")
        kept = [asyncio.create_task(journal.write())]
        if MODE == "drained":
            kept.append(asyncio.create_task(journal.drain_later()))
        await server.wait_for_termination()


join("ledger")
begin(asyncio.run, main())
stay()
