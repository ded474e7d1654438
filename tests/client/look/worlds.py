"""Two processes in one: a front whose handler or thread is stuck in a call of the back, in whatever way a test makes it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import grpc
import grpc.aio

from stilltrue import Agent
from stilltrue.model import PartyName, SnapshotId
from stilltrue.protocol.report import Report
from stilltrue.protocol.requests.look import Look, LookRequest, PartyLook, Suspect

PATIENCE_SECONDS = 30.0


def report_of(agent: Agent) -> Report:
    """A cut of the agent's process."""
    report = agent.live.marked(SnapshotId(agent.live.recorder.colour + 1))
    assert report is not None
    return report


def report_when(agent: Agent, found: Callable[[Report], bool], seconds_max: float = PATIENCE_SECONDS) -> Report:
    """Cut the agent's process until a report satisfies the condition."""
    end = time.monotonic() + seconds_max
    while not found(report := report_of(agent)):
        assert time.monotonic() < end, "no such report in time"
    return report


def suspects_of(report: Report) -> tuple[Suspect, ...]:
    """Every waiting party of the report, with its waits."""
    waits: dict[PartyName, list[Any]] = {}
    for wait in report.waits:
        waits.setdefault(wait.waiter, []).append(wait.number)
    return tuple(Suspect(party=party, waits=tuple(numbers)) for party, numbers in waits.items())


def look_at(agent: Agent, report: Report) -> Look:
    """Look at every waiting party of the report."""
    return agent.looker().look(LookRequest(snapshot=report.snapshot, suspects=suspects_of(report)))


def look_in_its_wait(agent: Agent, party: str) -> PartyLook:
    """The look at the one party whose name begins so, once it is in a wait that lasts; a short one may come first."""
    end = time.monotonic() + PATIENCE_SECONDS
    while True:
        report = report_when(agent, lambda report: any(wait.waiter.startswith(party) for wait in report.waits))
        seen = of(look_at(agent, report), party)
        if seen.unchanged:
            return seen
        assert time.monotonic() < end, "no lasting wait in time"


def of(look: Look, beginning: str) -> PartyLook:
    """The look at the one party whose name begins with ``name``."""
    (found,) = [one for one in look.parties if one.party.startswith(beginning)]
    return found


def holders(seen: PartyLook) -> list[str]:
    """The parties that may end its wait, with ``-`` for each open way out."""
    return sorted("-" if way.party is None else way.party.split("/")[1] for way in seen.ways_out)


@contextmanager
def serving(agent: Agent, *, workers: int = 4, pool: ThreadPoolExecutor | None = None, **behaviours: Any) -> Iterator[str]:
    """A threaded server with these unary methods of ``/s``, or (kind, behaviour); returns its address. ``pool``: its own."""
    methods: dict[str, Any] = {}
    for name, behaviour in behaviours.items():
        kind, inner = behaviour if isinstance(behaviour, tuple) else ("unary_unary", behaviour)
        methods[name] = getattr(grpc, f"{kind}_rpc_method_handler")(inner)
    executor = pool or ThreadPoolExecutor(workers)
    server = grpc.server(agent.pool(executor), interceptors=[agent.server_interceptor()])
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("s", methods),))
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    yield address
    server.stop(0).wait()
    executor.shutdown()


class Stuck:
    """A method that holds its callers until released."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.inside = threading.Semaphore(0)

    def __call__(self, request: Any, context: Any) -> Any:
        self.inside.release()
        assert self.go.wait(PATIENCE_SECONDS)
        return request

    def wait_for_callers(self, count: int = 1) -> None:
        """Wait until this many calls are held."""
        for _ in range(count):
            assert self.inside.acquire(timeout=PATIENCE_SECONDS)


Caller = Callable[[Any], object]


def look_at_caller(alone: Callable[..., Agent], stuck: Stuck, caller: Caller, calls: int = 1) -> PartyLook:
    """The look at a thread that runs ``caller`` with a stub of a stuck method and is stuck there."""
    front, back = alone("front"), alone("back")
    with serving(back, Get=stuck) as address, grpc.insecure_channel(address) as channel:
        thread = threading.Thread(target=caller, args=(front.channel(channel).unary_unary("/s/Get"),), name="caller")
        thread.start()
        stuck.wait_for_callers(calls)
        report = report_when(front, lambda report: any(wait.waiter == "front/thread:caller" for wait in report.waits))
        seen = of(look_at(front, report), "front/thread:caller")
        stuck.go.set()
        thread.join()
    return seen


async def settle() -> None:
    """Wait until the tasks that can continue at once have done so."""
    for _ in range(20):
        await asyncio.sleep(0)


Body = Callable[["LoopWorld"], Awaitable[Any]]


class LoopWorld:
    """A front on an event loop whose handler runs a body of the test.

    ``stuck``, ``upload``, ``flow`` and ``chat`` call the back, which holds its callers until ``go``; ``quick`` returns, and
    ``fail`` fails.
    """

    def __init__(self, front: Agent, back: Agent) -> None:
        self.front, self.back = front, back
        self.go = asyncio.Event()
        self.held = asyncio.Semaphore(0)
        self.body: Body
        self.on_context: Callable[[Any], object] = id
        """Receives the context of the front's handler."""
        self.cut: Report
        """The front's report of the latest look."""

    async def start(self) -> None:
        async def do(request: bytes, context: Any) -> bytes:
            self.on_context(context)
            await self.body(self)
            return b"done"

        async def hold(request: bytes, context: Any) -> bytes:
            self.held.release()
            await self.go.wait()
            return request

        async def hold_stream(requests: Any, context: Any) -> bytes:
            return await hold(await anext(requests), context)

        async def flow(request: bytes, context: Any) -> AsyncIterator[bytes]:
            yield await hold(request, context)

        async def chat(requests: Any, context: Any) -> AsyncIterator[bytes]:
            yield await hold(await anext(requests), context)

        async def quick(request: bytes, context: Any) -> bytes:
            return request

        async def failing(request: bytes, context: Any) -> bytes:
            await context.abort(grpc.StatusCode.NOT_FOUND, "nothing here")
            return b""

        back: dict[str, Any] = {
            "Stuck": grpc.unary_unary_rpc_method_handler(hold),
            "Quick": grpc.unary_unary_rpc_method_handler(quick),
            "Fail": grpc.unary_unary_rpc_method_handler(failing),
            "Upload": grpc.stream_unary_rpc_method_handler(hold_stream),
            "Flow": grpc.unary_stream_rpc_method_handler(flow),
            "Chat": grpc.stream_stream_rpc_method_handler(chat),
        }
        self.servers = []
        addresses = []
        for agent, methods in ((self.front, {"Do": grpc.unary_unary_rpc_method_handler(do)}), (self.back, back)):
            server = grpc.aio.server(interceptors=[agent.aio_server_interceptor()])
            server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("t.T", methods),))
            addresses.append(f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}")
            await server.start()
            self.servers.append(server)
        self.outside: Any = grpc.aio.insecure_channel(addresses[0])
        self.address = addresses[1]
        self.channel = self.front.channel(grpc.aio.insecure_channel(self.address))
        self.stuck: Any = self.channel.unary_unary("/t.T/Stuck")
        self.quick: Any = self.channel.unary_unary("/t.T/Quick")
        self.fail: Any = self.channel.unary_unary("/t.T/Fail")
        self.upload: Any = self.channel.stream_unary("/t.T/Upload")
        self.flow: Any = self.channel.unary_stream("/t.T/Flow")
        self.chat: Any = self.channel.stream_stream("/t.T/Chat")

    async def stop(self) -> None:
        self.go.set()
        for server in self.servers:
            await server.stop(0)
        await self.channel.close()
        await self.outside.close()

    async def look(
        self,
        body: Body,
        *,
        stuck: int = 1,
        timeout: float | None = None,
        meanwhile: Callable[[], Awaitable[None]] | None = None,
    ) -> Look:
        """The front's look at itself while ``body`` runs in its handler and ``stuck`` calls of it are stuck.

        ``meanwhile`` runs between the cut and the look.
        """
        self.body = body
        self.go.clear()
        call: Any = self.outside.unary_unary("/t.T/Do")(b"", timeout=timeout)
        for _ in range(stuck):
            await asyncio.wait_for(self.held.acquire(), PATIENCE_SECONDS)
        await settle()
        report = self.cut = report_of(self.front)
        if meanwhile is not None:
            await meanwhile()
        look = await asyncio.to_thread(look_at, self.front, report)
        self.go.set()
        await call
        assert self.front.live.faults == self.back.live.faults == 0
        return look


def handler_of(look: Look) -> PartyLook:
    """The party that serves the call, as opposed to its tasks."""
    return min(look.parties, key=lambda one: len(one.party))


def task_of(look: Look) -> PartyLook:
    """The handler's only task."""
    (task,) = [one for one in look.parties if one is not handler_of(look)]
    return task


def seconds_to(seen: PartyLook) -> float:
    """The seconds until its deadline."""
    assert seen.deadline is not None
    return seen.deadline - time.time()


def free_of_ways_out(look: Look) -> bool:
    """Whether none of these waits has a way out."""
    return all(one.unchanged and not one.ways_out and not one.doubt and one.deadline is None for one in look.parties)
