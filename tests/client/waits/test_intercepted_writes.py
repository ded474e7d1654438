"""Writes that gRPC keeps until a call's interceptors on an event loop have returned."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import grpc
import grpc.aio
import pytest

from stilltrue import Agent
from stilltrue.model import ProcessName
from stilltrue.protocol.report import CallTarget, LocalWait, PartyTarget, Report, next_request_of
from stilltrue.protocol.stamp import METADATA_KEY
from stilltrue.runtime.waits.streams import intercepted
from tests.client.look.worlds import PATIENCE_SECONDS, report_when, serving

FAR_SECONDS = 600.0
Intercept = Callable[[Any], Awaitable[object]]
Send = Callable[[Any], Awaitable[None]]


async def ask_for_the_code(call: Any) -> object:
    return await call.code()


async def ask_for_the_trailing_metadata(call: Any) -> object:
    return await call.trailing_metadata()


async def await_the_reply(call: Any) -> object:
    return await call


async def pause(call: Any) -> None:
    await asyncio.sleep(FAR_SECONDS)


async def wait_for_a_while(call: Any) -> object:
    return await asyncio.wait_for(call.code(), FAR_SECONDS)


async def write(method: Any) -> None:
    await method().write(b"")


async def write_in_time(method: Any) -> None:
    await asyncio.wait_for(method().write(b""), FAR_SECONDS)


async def pass_an_iterator(method: Any) -> None:
    await method(endless())


class Intercepts(grpc.aio.StreamUnaryClientInterceptor):
    """Runs ``intercept`` with the call before it returns that."""

    def __init__(self, intercept: Intercept) -> None:
        self.intercept = intercept
        self.begun = threading.Event()

    async def intercept_stream_unary(self, continuation: Any, client_call_details: Any, request_iterator: Any) -> Any:
        call = await continuation(client_call_details, request_iterator)
        asyncio.get_running_loop().call_soon(self.begun.set)
        await self.intercept(call)
        return call


async def endless() -> AsyncIterator[bytes]:
    while True:
        yield b""
        await asyncio.sleep(FAR_SECONDS)


@contextmanager
def uploading(alone: Callable[..., Agent], intercept: Intercept, send: Send = write) -> Iterator[Agent]:
    """A client that sends a request beneath an interceptor; the server reads all requests."""
    client, server, go = alone("client"), alone("server"), threading.Event()
    intercepts, running = Intercepts(intercept), list[Any]()

    def upload(requests: Iterator[bytes], _: Any) -> bytes:
        return b"".join(requests)

    async def run(address: str) -> None:
        running[:] = asyncio.get_running_loop(), asyncio.current_task()
        async with grpc.aio.insecure_channel(address, interceptors=[intercepts]) as plain:
            method: Any = client.channel(plain).stream_unary("/s/Upload")
            with suppress(asyncio.CancelledError, asyncio.InvalidStateError):
                await send(method)

    with serving(server, Upload=("stream_unary", upload)) as address:
        thread = threading.Thread(target=lambda: asyncio.run(run(address)), daemon=True)
        thread.start()
        try:
            assert intercepts.begun.wait(PATIENCE_SECONDS)
            yield client
        finally:
            running[0].call_soon_threadsafe(running[1].cancel)
            go.set()
            thread.join(PATIENCE_SECONDS)


def _ending(report: Report) -> list[LocalWait]:
    """The waits for the end of a call."""
    return [wait for wait in report.waits if isinstance(wait.among[0], CallTarget)]


@pytest.mark.parametrize("intercept", [ask_for_the_code, ask_for_the_trailing_metadata, await_the_reply])
def test_an_interceptor_waits_for_the_call_whose_requests_wait_for_it(
    alone: Callable[..., Agent], intercept: Intercept
) -> None:
    with uploading(alone, intercept) as client:
        report = report_when(client, lambda report: bool(_ending(report)))
        (made,), (ending,), (hold,) = report.made, _ending(report), report.holds
        assert ending.among == (CallTarget(number=made.number),)
        assert hold.resource == next_request_of(ProcessName("client"), made.number)
        writers = {wait.waiter: wait.among for wait in report.waits if wait is not ending}
        assert hold.party in writers
        assert list(writers.values()) == [(PartyTarget(party=ending.waiter),)] * 2


@pytest.mark.parametrize("intercept", [pause, wait_for_a_while])
def test_who_writes_goes_on_when_an_interceptor_does(alone: Callable[..., Agent], intercept: Intercept) -> None:
    with uploading(alone, intercept) as client:
        report = report_when(client, lambda report: len(report.waits) >= 2)
        assert all(wait.deadline is not None for wait in report.waits)


def test_a_writer_that_gives_up_cancels_the_interceptors(alone: Callable[..., Agent]) -> None:
    with uploading(alone, ask_for_the_code, write_in_time) as client:
        (ending,) = _ending(report_when(client, lambda report: bool(_ending(report))))
        assert ending.deadline is not None


def test_the_items_of_an_iterator_are_not_kept(alone: Callable[..., Agent]) -> None:
    with uploading(alone, ask_for_the_code, pass_an_iterator) as client:
        report = report_when(client, lambda report: bool(report.waits))
        assert [type(wait.among[0]) for wait in report.waits] == [CallTarget], "that of the task that awaits the reply"
        assert not report.holds


async def _object_of_a_call_with(stamps: Sequence[str]) -> Any:
    """gRPC's object of a call that was made with these stamps; nobody serves it."""
    async with grpc.aio.insecure_channel("127.0.0.1:9") as channel:
        metadata = tuple((METADATA_KEY, one) for one in stamps)
        call: Any = channel.stream_unary("/s/Upload")(metadata=metadata)
        call.cancel()
        return call


@pytest.mark.parametrize(
    ("stamps", "number"),
    [(["client;1;7;1;7"], 7), (["server;1;7;1;7"], None), (["client;1;7;1;7", "client;1;8;1;7"], None), ([], None)],
)
def test_a_call_with_another_processs_stamp_is_not_the_recorded_one(stamps: list[str], number: int | None) -> None:
    assert intercepted.number_of(asyncio.run(_object_of_a_call_with(stamps)), ProcessName("client")) == number
