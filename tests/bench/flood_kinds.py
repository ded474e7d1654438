"""The kinds of floods: what strangers, agents and readers can send without end."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from stilltrue.v1 import agent_pb2, agent_pb2_grpc, detector_pb2, detector_pb2_grpc, snapshot_pb2

AGENTS = 20
"""The honest agents: ``p0`` and so on."""
Flood = Callable[["Target"], Awaitable[None]]
FLOODS: dict[str, Flood] = {}
ALONE = [("grpc.use_local_subchannel_pool", 1)]


@dataclass(frozen=True, slots=True)
class Target:
    """The detector, as its flood sees it."""

    address: str
    web: str

    def channel(self) -> grpc.aio.Channel:
        """A connection of its own."""
        return grpc.aio.insecure_channel(self.address, options=ALONE)


def flood(run: Flood) -> Flood:
    """One kind of flood, by its name."""
    FLOODS[run.__name__.replace("_", " ")] = run
    return run


@contextlib.asynccontextmanager
async def child(*command: str) -> AsyncIterator[tuple[Any, str]]:
    """A Python process, and the first line that it prints."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
        env={**os.environ, "GRPC_VERBOSITY": "NONE"}, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    try:
        assert process.stdout is not None
        yield process, (await process.stdout.readline()).decode()
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def forever(*runs: Callable[[], Awaitable[Any]]) -> None:
    """Each of ``runs`` again and again, whatever it is told."""

    async def again(run: Callable[[], Awaitable[Any]]) -> None:
        while True:
            with contextlib.suppress(grpc.aio.AioRpcError, grpc.aio.UsageError, asyncio.InvalidStateError, OSError):
                await run()
            await asyncio.sleep(0)

    await asyncio.gather(*(again(run) for run in runs))


def stubs(target: Target, connections: int) -> list[Any]:
    """As many connections."""
    return [detector_pb2_grpc.DetectorServiceStub(target.channel()) for _ in range(connections)]  # type: ignore[no-untyped-call]


# -- askers ------------------------------------------------------------------------------------------------------------

QUESTION = detector_pb2.AskRequest(predicate="deadlock")


@flood
async def asks_of_one_connection(target: Target) -> None:
    """300 at a time; 200 are allowed."""
    (stub,) = stubs(target, 1)
    await forever(*[partial(stub.Ask, QUESTION)] * 300)


@flood
async def asks_of_many_connections(target: Target) -> None:
    """20 connections with 60 each: more than are accepted in all."""
    await forever(*[partial(stub.Ask, QUESTION) for stub in stubs(target, 20) for _ in range(60)])


@flood
async def asks_of_sixty_megabytes(target: Target) -> None:
    """They are refused by their length."""
    big = detector_pb2.AskRequest(predicate="x" * 60_000_000)
    await forever(*[partial(stub.Ask, big) for stub in stubs(target, 4)])


@flood
async def watches(target: Target) -> None:
    """Opened and broken off, 20 connections with 20 each."""

    async def watch(stub: Any) -> None:
        call = stub.Watch(detector_pb2.WatchRequest())
        await call.read()
        call.cancel()

    await forever(*[partial(watch, stub) for stub in stubs(target, 20) for _ in range(20)])


@flood
async def lists(target: Target) -> None:
    """All snapshots and incidents, 10 connections."""
    many = stubs(target, 10)
    await forever(
        *[partial(stub.ListSnapshots, detector_pb2.ListSnapshotsRequest(limit=10_000)) for stub in many],
        *[partial(stub.ListIncidents, detector_pb2.ListIncidentsRequest(limit=10_000)) for stub in many],
    )


# -- agents ------------------------------------------------------------------------------------------------------------


async def _hello(target: Target, number: int, labels: dict[str, str]) -> None:
    async with target.channel() as channel:
        call = agent_pb2_grpc.AgentServiceStub(channel).Connect()  # type: ignore[no-untyped-call]
        process = snapshot_pb2.ProcessId(service="flood", instance=f"flood-{number}", incarnation=time.time_ns())
        await call.write(agent_pb2.ConnectRequest(hello=agent_pb2.Hello(process=process, labels=labels)))
        await call.read()
        with contextlib.suppress(asyncio.InvalidStateError):
            await call.write(agent_pb2.ConnectRequest(goodbye=agent_pb2.Goodbye()))
            await call.done_writing()
            await call.read()


@flood
async def hellos(target: Target) -> None:
    """Ten agents that join and leave all the time."""
    await forever(*[partial(_hello, target, number, {}) for number in range(10)])


@flood
async def hellos_with_large_labels(target: Target) -> None:
    """12 MB each; 64 KiB are accepted."""
    labels = {"x": "y" * 12_000_000}
    await forever(*[partial(_hello, target, number, labels) for number in range(4)])


@flood
async def ghosts(target: Target) -> None:
    """Ten streams, each of which joins under a new name and breaks off, all the time."""
    names = itertools.count()

    async def ghost() -> None:
        async with target.channel() as channel:
            call = agent_pb2_grpc.AgentServiceStub(channel).Connect()  # type: ignore[no-untyped-call]
            process = snapshot_pb2.ProcessId(service="flood", instance=f"ghost-{next(names)}", incarnation=time.time_ns())
            await call.write(agent_pb2.ConnectRequest(hello=agent_pb2.Hello(process=process)))
            await call.read()
            call.cancel()

    await forever(*[ghost] * 10)


async def _lies(
    target: Target, name: str, said: Callable[[snapshot_pb2.Report], Iterable[snapshot_pb2.Report]], *, looks: bool = False
) -> None:
    """An agent that answers each mark with what ``said`` makes of a plain report, and no request to look."""
    async with target.channel() as channel:
        call = agent_pb2_grpc.AgentServiceStub(channel).Connect()  # type: ignore[no-untyped-call]
        process = snapshot_pb2.ProcessId(service="flood", instance=name, incarnation=time.time_ns())
        await call.write(agent_pb2.ConnectRequest(hello=agent_pb2.Hello(process=process, looks=looks)))
        after = 0
        while (answer := await call.read()) is not grpc.aio.EOF:
            if answer.WhichOneof("message") == "mark":
                plain = snapshot_pb2.Report(
                    process=process, snapshot=answer.mark.snapshot, after=after, cut_at=time.time(), next_number=1,
                    activity=snapshot_pb2.ACTIVITY_IDLE,
                )  # fmt: skip
                after = answer.mark.snapshot
                for report in said(plain):
                    await call.write(agent_pb2.ConnectRequest(report=report))


@flood
async def reports_that_are_late(target: Target) -> None:
    """Each a thousand times, with 2,000 waits: they are refused."""

    def again(report: snapshot_pb2.Report) -> Iterable[snapshot_pb2.Report]:
        for number in range(2000):
            report.waits.add(
                waiter=f"late/{number}", number=number + 1, among=[snapshot_pb2.Target(party=f"late/{number}")], needs=1
            )
        return [report] * 1000

    await forever(partial(_lies, target, "late", again))


@flood
async def reports_of_50_000_waits(target: Target) -> None:
    """As many as are accepted, in one cycle each two."""

    def full(report: snapshot_pb2.Report) -> Iterable[snapshot_pb2.Report]:
        for number in range(50_000):
            other = snapshot_pb2.Target(party=f"full/{number ^ 1}")
            report.waits.add(waiter=f"full/{number}", number=number + 1, among=[other], needs=1)
        return [report]

    await forever(partial(_lies, target, "full", full))


@flood
async def reports_that_contradict(target: Target) -> None:
    """Calls seen that nobody sent."""

    def lie(report: snapshot_pb2.Report) -> Iterable[snapshot_pb2.Report]:
        for number in range(AGENTS):
            report.seen.add(caller=snapshot_pb2.Caller(process=f"p{number}", incarnation=1), highest=10**9, plain=[10**9])
        return [report]

    await forever(*[partial(_lies, target, f"liar-{number}", lie) for number in range(5)])


@flood
async def looks_that_are_not_answered(target: Target) -> None:
    """Other parties of it are stuck in each report, and it never looks at them."""

    def stuck(report: snapshot_pb2.Report) -> Iterable[snapshot_pb2.Report]:
        for number in (2 * report.snapshot, 2 * report.snapshot + 1):
            other = snapshot_pb2.Target(party=f"mute/{number ^ 1}")
            report.waits.add(waiter=f"mute/{number}", number=number, among=[other], needs=1)
        return [report]

    await forever(partial(_lies, target, "mute", stuck, looks=True))


@flood
async def wishes(target: Target) -> None:
    """Agents that ask for a snapshot all the time."""

    async def wish(number: int) -> None:
        async with target.channel() as channel:
            call = agent_pb2_grpc.AgentServiceStub(channel).Connect()  # type: ignore[no-untyped-call]
            process = snapshot_pb2.ProcessId(service="flood", instance=f"wish-{number}", incarnation=time.time_ns())
            await call.write(agent_pb2.ConnectRequest(hello=agent_pb2.Hello(process=process)))
            while True:
                await call.write(agent_pb2.ConnectRequest(wish=agent_pb2.Wish(reason="flood")))

    await forever(*[partial(wish, number) for number in range(3)])


@flood
async def leases_of_many(target: Target) -> None:
    """Sixty agents that say that they live, and nothing else, as fast as they can."""

    async def live(number: int) -> None:
        async with target.channel() as channel:
            call = agent_pb2_grpc.AgentServiceStub(channel).Connect()  # type: ignore[no-untyped-call]
            process = snapshot_pb2.ProcessId(service="flood", instance=f"lives-{number}", incarnation=time.time_ns())
            await call.write(agent_pb2.ConnectRequest(hello=agent_pb2.Hello(process=process)))
            while True:
                await call.write(agent_pb2.ConnectRequest(lease=agent_pb2.Lease()))

    await forever(*[partial(live, number) for number in range(60)])


@flood
async def reports_of_megabytes(target: Target) -> None:
    """Each a hundred times, with 2 MB of names: they are refused."""

    def again(report: snapshot_pb2.Report) -> Iterable[snapshot_pb2.Report]:
        for number in range(2000):
            report.waits.add(waiter=f"late/{number}", number=number + 1, among=[snapshot_pb2.Target(party="x" * 1000)], needs=1)
        return [report] * 100

    await forever(*[partial(_lies, target, f"large-{number}", again) for number in range(3)])


# -- strangers ---------------------------------------------------------------------------------------------------------


async def _sent(address: str, content: bytes, linger: float = 0.0) -> None:
    host, _, port = address.rpartition(":")
    _, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(content)
        await writer.drain()
        await asyncio.sleep(linger)
    finally:
        writer.close()


@flood
async def garbage(target: Target) -> None:
    """Bytes that are no HTTP, on both ports."""
    junk = bytes(range(256)) * 16
    await forever(*[partial(_sent, at, junk) for at in (target.address, target.web) for _ in range(10)])


@flood
async def headers_that_never_end(target: Target) -> None:
    """200 connections at a time on either port."""
    start = b"GET / HTTP/1.1\r\nX: "
    await forever(*[partial(_sent, at, start, 5.0) for at in (target.address, target.web) for _ in range(200)])


@flood
async def pages(target: Target) -> None:
    """Metrics, members and snapshots, 20 readers."""

    async def read(path: str) -> None:
        host, _, port = target.web.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(f"GET {path} HTTP/1.0\r\nHost: {target.web}\r\n\r\n".encode())
        await reader.read()
        writer.close()

    await forever(*[partial(read, path) for path in ("/", "/metrics", "/members", "/snapshots") for _ in range(5)])
