"""What outsiders do to the detector and to the members: each with an ordinary client and no credential."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Any

import grpc
import grpc.aio

from stilltrue.protocol.stamp import METADATA_KEY
from stilltrue.v1 import agent_pb2, agent_pb2_grpc, detector_pb2, detector_pb2_grpc, snapshot_pb2
from tests.chaos.rounds import NAMES, Nemesis, act


@act
async def stamps_are_forged(nemesis: Nemesis) -> None:
    """Ordinary calls of a stranger's, in a member's name."""
    victim, server = nemesis.random.sample(NAMES, 2)
    for forged in (f"{victim};7;9999999;0;9999999", f"{victim};7;1;{10**9};1", "x" * 400):
        async with grpc.aio.insecure_channel(nemesis.fleet.address(server)) as channel:
            call: Any = channel.unary_unary("/chaos.Member/Do")
            with contextlib.suppress(grpc.aio.AioRpcError):
                await call(b"x", metadata=((METADATA_KEY, forged),), timeout=0.5)


@act
async def asks_flood(nemesis: Nemesis) -> None:
    """More questions from one connection than it may have."""
    async with grpc.aio.insecure_channel(
        f"127.0.0.1:{nemesis.fleet.port}", options=[("grpc.use_local_subchannel_pool", 1)]
    ) as channel:
        stub: Any = detector_pb2_grpc.DetectorServiceStub(channel)  # type: ignore[no-untyped-call]
        request = detector_pb2.AskRequest(predicate="deadlock")
        calls = [stub.Ask(request, timeout=5) for _ in range(300)]
        await asyncio.gather(*calls, return_exceptions=True)


@act
async def calls_hang(nemesis: Nemesis) -> None:
    """Calls that send nothing, more than are read at once, on a connection of their own."""
    address = f"127.0.0.1:{nemesis.fleet.port}"
    async with grpc.aio.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
        methods = ("/stilltrue.v1.DetectorService/Ask", "/stilltrue.v1.AgentService/Connect")
        calls: list[Any] = [channel.stream_stream(method)() for method in methods for _ in range(100)]
        await nemesis.pause(1.0, 3.0)
        for call in calls:
            call.cancel()


@act
async def garbage_comes(nemesis: Nemesis) -> None:
    """Bytes that are no HTTP/2, headers that never end."""
    junk = bytes(nemesis.random.randrange(256) for _ in range(4096))
    for port, content in ((nemesis.fleet.port, junk), (nemesis.fleet.http_port, b"GET / HTTP/1.1\r\nX: ")):
        for _ in range(20):
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(content)
                await writer.drain()
                writer.close()


@act
async def agent_is_hostile(nemesis: Nemesis) -> None:
    """It joins under a name of its own and lies: colours of no snapshot, calls that nobody sent, reports of others."""
    address = f"127.0.0.1:{nemesis.fleet.port}"
    async with grpc.aio.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
        stub: Any = agent_pb2_grpc.AgentServiceStub(channel)  # type: ignore[no-untyped-call]
        process = snapshot_pb2.ProcessId(service="chaos", instance="liar", incarnation=nemesis.random.randrange(1, 2**40))
        call = stub.Connect(timeout=120)  # it says goodbye, however slow all else is: else it is missing, and rightly so
        with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError, TimeoutError):
            await call.write(agent_pb2.ConnectRequest(hello=agent_pb2.Hello(process=process, colour=10**6)))
            for _ in range(8):
                answer = await asyncio.wait_for(call.read(), 30)
                if answer is grpc.aio.EOF:
                    return
                if answer.WhichOneof("message") == "mark":
                    await call.write(agent_pb2.ConnectRequest(report=_lies(process, answer.mark.snapshot)))
            await call.write(agent_pb2.ConnectRequest(goodbye=agent_pb2.Goodbye()))
            await call.done_writing()
            await asyncio.wait_for(call.read(), 30)


def _lies(process: snapshot_pb2.ProcessId, snapshot: int) -> snapshot_pb2.Report:
    seen = [
        snapshot_pb2.Seen(caller=snapshot_pb2.Caller(process=name, incarnation=1), highest=10**9, plain=[10**9])
        for name in NAMES
    ]
    return snapshot_pb2.Report(
        process=process, snapshot=snapshot, after=snapshot - 1, cut_at=time.time(), next_number=1, seen=seen,
        activity=snapshot_pb2.ACTIVITY_IDLE,
    )  # fmt: skip
