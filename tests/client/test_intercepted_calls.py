"""A call that the application's interceptors work on, on a loop, is served by their task, with the call's own deadline."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import grpc
import grpc.aio
import pytest

from stilltrue import Agent
from stilltrue.protocol.report import Report, ServedCall
from stilltrue.runtime import compat
from tests.client import since_311
from tests.client.look.worlds import PATIENCE_SECONDS, report_of
from tests.client.shells import handlers

DEADLINE_SECONDS = 50.0


class Waits(grpc.aio.ServerInterceptor):
    """Holds each call until ``go``."""

    def __init__(self) -> None:
        self.go = asyncio.Event()

    async def intercept_service(self, continuation: Any, handler_call_details: Any) -> Any:
        await self.go.wait()
        return await continuation(handler_call_details)


async def _report_of_intercepted(agent: Agent, timeout: float | None) -> Report:
    """The server's report while an interceptor holds a call with this timeout; the call is then answered."""

    async def do(request: bytes, _: Any) -> bytes:
        return request

    waits = Waits()
    server = grpc.aio.server(handlers=handlers(Do=do), interceptors=[agent.aio_server_interceptor(), waits])
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel, since_311.timeout(PATIENCE_SECONDS):
        do_stub: Any = channel.unary_unary("/t.T/Do")
        call = do_stub(b"x", timeout=timeout)
        while not (report := report_of(agent)).served or not report.served[0].serving:
            await asyncio.sleep(0.01)
        waits.go.set()
        assert await call == b"x"
    await server.stop(None)
    assert agent.live.faults == 0
    return report


def _served(agent: Agent, timeout: float | None) -> ServedCall:
    (served,) = asyncio.run(_report_of_intercepted(agent, timeout)).served
    return served


def test_the_task_of_an_interceptor_serves_the_call(alone: Callable[..., Agent]) -> None:
    served = _served(alone("server"), None)
    assert (served.serving, served.deadline, served.interruptible) == (True, None, True)


def test_the_deadline_is_known_before_there_is_a_handler(alone: Callable[..., Agent]) -> None:
    before = time.time()
    served = _served(alone("server"), DEADLINE_SECONDS)
    assert served.deadline is not None
    assert before < served.deadline < time.time() + DEADLINE_SECONDS


def test_an_unreadable_deadline_may_have_passed(alone: Callable[..., Agent], monkeypatch: pytest.MonkeyPatch) -> None:
    def unreadable(_: object) -> None:
        raise LookupError

    monkeypatch.setattr(compat, "aio_seconds_left", unreadable)
    served = _served(alone("server"), None)
    assert served.deadline is not None
    assert served.deadline <= time.time()
