"""Widely known: each of two services holds a lock while it calls the other, which needs its own. OpenTelemetry traces them."""

import asyncio
from typing import Any

import grpc
import grpc.aio
from field_program import FAR_SECONDS, MODE, PROCESS, begin, join, meet, publish, published, stay
from opentelemetry import trace
from opentelemetry.instrumentation.grpc import GrpcAioInstrumentorClient, GrpcAioInstrumentorServer
from opentelemetry.sdk.trace import TracerProvider

OTHER = {"orders": "stock", "stock": "orders"}[PROCESS]


class Patience(grpc.aio.UnaryUnaryClientInterceptor):
    """Waits for the end of each call, not for ever."""

    async def intercept_unary_unary(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        """gRPC's interface."""
        call = await continuation(client_call_details, request)
        await asyncio.wait_for(call.code(), FAR_SECONDS)
        return call


async def cancel_later(call: Any) -> None:
    await asyncio.sleep(FAR_SECONDS)
    call.cancel()


async def serve() -> None:
    lock = asyncio.Lock()
    tasks = []

    async def place(request: bytes, context: "grpc.aio.ServicerContext[bytes, bytes]") -> bytes:
        async with lock:
            publish(f"locked.{PROCESS}", "")
            await asyncio.to_thread(published, f"locked.{OTHER}")
            call = count(request, timeout=FAR_SECONDS if MODE == "deadline" else None)
            if MODE == "cancelled":
                tasks.append(asyncio.create_task(cancel_later(call)))
            return await call  # core: orders  # core: stock

    async def counted(request: bytes, context: "grpc.aio.ServicerContext[bytes, bytes]") -> bytes:
        async with lock:  # core: orders  # core: stock
            return request

    server = grpc.aio.server()
    handlers = {"Place": grpc.unary_unary_rpc_method_handler(place), "Count": grpc.unary_unary_rpc_method_handler(counted)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("s", handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    publish(PROCESS, f"127.0.0.1:{port}")
    await asyncio.to_thread(meet, "orders", "stock")
    interceptors = [Patience()] if MODE == "intercepted" else None
    count: Any = grpc.aio.insecure_channel(published(OTHER), interceptors=interceptors).unary_unary("/s/Count")
    begin(lambda: grpc.insecure_channel(f"127.0.0.1:{port}").unary_unary("/s/Place")(b""))  # behind: orders  # behind: stock
    await server.wait_for_termination()


trace.set_tracer_provider(TracerProvider())
GrpcAioInstrumentorServer().instrument()
GrpcAioInstrumentorClient().instrument()
join(PROCESS)
begin(asyncio.run, serve())
published(f"locked.{PROCESS}")
stay()
