"""A server's interceptor takes a permit for each call; a handler calls the same server, which has no permit left."""

import asyncio
from typing import Any

import grpc
import grpc.aio
from field_program import FAR_SECONDS, MODE, begin, join, stay

ports: list[int] = []


class Limit(grpc.aio.ServerInterceptor):
    """Serves a bounded number of calls at a time."""

    def __init__(self) -> None:
        self.permits = asyncio.Semaphore(2 if MODE == "permit" else 1)

    async def intercept_service(self, continuation: Any, details: Any) -> Any:
        handler = await continuation(details)

        async def limited(request: bytes, context: Any) -> bytes:
            async with self.permits:  # core: site
                return await handler.unary_unary(request, context)

        return grpc.unary_unary_rpc_method_handler(limited)


async def render(request: bytes, context: Any) -> bytes:
    if request:
        await asyncio.sleep(FAR_SECONDS)
    async with grpc.aio.insecure_channel(f"127.0.0.1:{ports[0]}") as channel:
        call = channel.unary_unary("/Site/Render")(b"part", timeout=FAR_SECONDS if MODE == "deadline" else None)
        return await call  # core: site


async def main() -> None:
    server = grpc.aio.server(interceptors=[Limit()])
    handlers = {"Render": grpc.unary_unary_rpc_method_handler(render)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("Site", handlers),))
    ports.append(server.add_insecure_port("127.0.0.1:0"))
    await server.start()
    call = grpc.insecure_channel(f"127.0.0.1:{ports[0]}").unary_unary("/Site/Render")
    begin(lambda: call(b""))  # behind: site
    await server.wait_for_termination()


join("site")
begin(asyncio.run, main())
stay()
