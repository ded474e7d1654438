"""A served call leaves no garbage cycles behind: memory that is reused at once is still in the cache."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from typing import Any
from weakref import ref

import grpc
import grpc.aio

from stilltrue import Agent
from tests.client.shells import handlers

PATIENCE_SECONDS = 20.0
Alone = Callable[..., Agent]


async def test_a_serving_task_is_freed_without_a_garbage_collection(alone: Alone) -> None:
    agent = alone("server")
    served: list[ref[Any]] = []
    gone = asyncio.Event()

    async def do(request: bytes, _: Any) -> bytes:
        task = asyncio.current_task()
        assert task is not None
        served.append(ref(task, lambda _: gone.set()))
        return request

    server = grpc.aio.server(handlers=handlers(Do=do), interceptors=[agent.aio_server_interceptor()])
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    gc.disable()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            call: Any = channel.unary_unary("/t.T/Do")
            assert await call(b"x") == b"x"
            await asyncio.wait_for(gone.wait(), PATIENCE_SECONDS)
    finally:
        gc.enable()
        await server.stop(0)
    assert [one() for one in served] == [None]
