"""The first caller of a key loads it while the others wait for its event; what it calls to load it needs the same key."""

import asyncio
from typing import Any

import grpc
import grpc.aio
from field_program import FAR_SECONDS, MODE, begin, join, stay


class Pages:
    """Loads each page once at a time."""

    def __init__(self) -> None:
        self.loading: dict[bytes, asyncio.Event] = {}
        self.loaded: dict[bytes, bytes] = {}
        self.ask: Any = None

    async def page(self, name: bytes, context: Any) -> bytes:
        loaded = self.loading.get(name)
        if loaded is not None:
            if MODE == "time_out":
                async with asyncio.timeout(FAR_SECONDS):
                    await loaded.wait()
            await loaded.wait()  # core: pages
            return self.loaded[name]
        loaded = self.loading[name] = asyncio.Event()
        try:
            self.loaded[name] = await self.load(name)
            return self.loaded[name]
        finally:
            del self.loading[name]
            loaded.set()

    async def load(self, name: bytes) -> bytes:
        names = set(name.split(b"/")[:1])  # a builtin that is called as an event's method
        if MODE == "slow":
            await asyncio.sleep(FAR_SECONDS)
        return bytes(await self.ask(names.pop(), timeout=FAR_SECONDS if MODE == "deadline" else None))  # core: pages

    async def forget(self, name: bytes, context: Any) -> bytes:
        for one in self.loading.values():
            one.set()
        return b""

    async def count(self, name: bytes, context: Any) -> bytes:
        return b"%d" % len(set(self.loaded))

    async def forget_later(self) -> None:
        await asyncio.sleep(FAR_SECONDS)
        await self.forget(b"", None)


async def main() -> None:
    pages = Pages()
    server = grpc.aio.server()
    methods = {"Page": pages.page, "Forget": pages.forget if MODE == "method" else pages.count}
    handlers = {name: grpc.unary_unary_rpc_method_handler(method) for name, method in methods.items()}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("Pages", handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    call = grpc.insecure_channel(f"127.0.0.1:{port}").unary_unary("/Pages/Page")
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        pages.ask = channel.unary_unary("/Pages/Page")
        kept = []
        if MODE == "task":
            kept.append(asyncio.create_task(pages.forget_later()))
        elif MODE == "timer":
            asyncio.get_running_loop().call_later(FAR_SECONDS, lambda: [one.set() for one in pages.loading.values()])
        begin(lambda: call(b"index"))  # behind: pages
        await server.wait_for_termination()


join("pages")
begin(asyncio.run, main())
stay()
