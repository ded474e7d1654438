"""First messages are read in turns: calls that send nothing delay no other."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from detector.service.grpc_api.first_messages import FirstMessages
from stilltrue.v1 import detector_pb2, detector_pb2_grpc, snapshot_pb2

ANSWER_SECONDS_MAX = 6.0
"""Before, 160 calls that hang took a place each for five seconds, eight at a time: minutes."""


async def silence() -> bytes:
    await asyncio.sleep(60)
    return b""


async def at_once() -> bytes:
    return b"x"


async def ended(*tasks: asyncio.Task[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_silent_client_is_waited_for_while_no_other_waits() -> None:
    reading = FirstMessages(1, patience_seconds=0.01)

    async def late() -> bytes:
        await asyncio.sleep(0.1)
        return b"late"

    assert await reading.read("a", late, 10.0) == b"late"
    with pytest.raises(TimeoutError):
        await reading.read("a", silence, 0.02)


async def test_a_long_read_ends_when_another_client_waits() -> None:
    reading = FirstMessages(1, patience_seconds=0.01)
    hung = asyncio.create_task(reading.read("a", silence, 60.0))
    await asyncio.sleep(0)
    assert await reading.read("b", at_once, 60.0) == b"x"
    with pytest.raises(TimeoutError):
        await hung


async def test_messages_sent_while_the_loop_was_blocked_are_read() -> None:
    reading = FirstMessages(1, patience_seconds=0.2)
    sent = asyncio.Event()

    async def some_turns_later() -> bytes:
        await sent.wait()
        for _ in range(5):  # as gRPC takes a message
            await asyncio.sleep(0)
        return b"sent"

    first = asyncio.create_task(reading.read("a", some_turns_later, 60.0))
    await asyncio.sleep(0)
    second = asyncio.create_task(reading.read("b", at_once, 60.0))
    await asyncio.sleep(0)
    asyncio.get_running_loop().call_soon(time.sleep, 0.5)
    asyncio.get_running_loop().call_soon(sent.set)
    assert (await first, await second) == (b"sent", b"x")


async def test_a_long_read_ends_even_if_the_loop_is_blocked_all_the_time() -> None:
    reading = FirstMessages(1, patience_seconds=0.1)
    hung = asyncio.create_task(reading.read("a", silence, 60.0))
    await asyncio.sleep(0)
    waits = asyncio.create_task(reading.read("b", at_once, 60.0))
    for _ in range(30):
        asyncio.get_running_loop().call_soon(time.sleep, 0.25)
        await asyncio.sleep(0)
        if waits.done():
            break
    assert await waits == b"x"
    with pytest.raises(TimeoutError):
        await hung


async def test_connections_take_turns_and_slow_ones_come_last() -> None:
    reading = FirstMessages(1, patience_seconds=0.01)
    hung = [asyncio.create_task(reading.read("a", silence, 60.0)) for _ in range(100)]
    await asyncio.sleep(0)
    begun = time.monotonic()
    for _ in range(5):
        assert await reading.read("b", at_once, 60.0) == b"x"
    assert time.monotonic() - begun < 0.5, "a hundred of them would take a second each time"
    await ended(*hung)


async def test_a_call_that_ends_while_waiting_passes_its_turn_on() -> None:
    reading = FirstMessages(1, patience_seconds=60.0)
    go = asyncio.Event()

    async def held() -> bytes:
        await go.wait()
        return b"held"

    first = asyncio.create_task(reading.read("a", held, 60.0))
    await asyncio.sleep(0)
    waiting = [asyncio.create_task(reading.read("b", at_once, 60.0)) for _ in range(3)]
    await asyncio.sleep(0)
    await ended(waiting[0])
    go.set()
    await asyncio.sleep(0)
    await ended(waiting[1])
    assert await asyncio.wait_for(waiting[2], 5.0) == b"x"
    assert await first == b"held"


CALLERS_THAT_SEND_NOTHING = """
import asyncio, contextlib, sys
import grpc

async def hang(channel, method):
    call = channel.stream_stream(method)
    while True:
        with contextlib.suppress(grpc.aio.AioRpcError):
            await call().read()

async def main(address, method):
    channels = [grpc.aio.insecure_channel(address, [("grpc.use_local_subchannel_pool", 1)]) for _ in range(4)]
    hung = [asyncio.create_task(hang(channel, method)) for channel in channels for _ in range(40)]
    await asyncio.sleep(0.5)
    print("all wait", flush=True)
    await asyncio.wait(hung)

asyncio.run(main(*sys.argv[1:]))
"""
"""In a process of their own, for the loop of `grpc.aio` can wait for ever for calls that are cancelled as they begin."""


@pytest.mark.slow
@pytest.mark.parametrize("method", ["/stilltrue.v1.DetectorService/Ask", "/stilltrue.v1.AgentService/Connect"])
async def test_silent_calls_delay_no_question_and_no_agent(
    method: str, start_detector: Any, process: Any, tmp_path: Path
) -> None:
    honest = process("honest")

    async with start_detector(tmp_path) as detector, contextlib.AsyncExitStack() as stack:
        callers = await asyncio.create_subprocess_exec(
            sys.executable, "-c", CALLERS_THAT_SEND_NOTHING, detector.address, method, stdout=asyncio.subprocess.PIPE
        )
        stack.push_async_callback(callers.wait)
        stack.callback(callers.kill)
        assert callers.stdout is not None
        assert await callers.stdout.readline() == b"all wait\n"
        await asyncio.wait_for(detector.join(honest), ANSWER_SECONDS_MAX)
        assert honest.welcomed.is_set()
        stub: Any = detector_pb2_grpc.DetectorServiceStub(detector.channel)  # type: ignore[no-untyped-call]
        answer = await stub.Ask(detector_pb2.AskRequest(predicate="deadlock"), timeout=ANSWER_SECONDS_MAX)
        assert answer.verdict.holds == snapshot_pb2.HOLDS_FALSE
