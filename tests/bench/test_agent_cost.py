"""The agent's cost for a unary call, both sides together, compared with plain gRPC and other instrumentation.

    python tests/bench/test_agent_cost.py [ROUNDS]      prints the tables: medians, differences, ratios; Python functions called
    pytest tests/bench/test_agent_cost.py               the same with few rounds; asserts behaviour and counts, never times

Every contender has its own server and channel in this one process; rounds are interleaved, so that what else the machine does
falls on all alike, and their order changes. "cpu" is the processor time of the whole process (both sides) per call, which
depends less on the load; the differences are medians over the rounds. OpenTelemetry and py-grpc-prometheus take part where they
are installed.
"""

from __future__ import annotations

import asyncio
import importlib
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any

import grpc
import grpc.aio

import stilltrue
from stilltrue import Agent
from stilltrue.runtime.membership.connection import Connection


def optional(name: str) -> Any:
    """A module that takes part where it is installed, else None."""
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


OTEL = optional("opentelemetry.instrumentation.grpc")
OTEL_CHANNELS = optional("opentelemetry.instrumentation.grpc.grpcext")
OTEL_API = optional("opentelemetry.trace")
OTEL_SDK = optional("opentelemetry.sdk.trace")
OTEL_EXPORT = optional("opentelemetry.sdk.trace.export")
PROM_CLIENT = optional("py_grpc_prometheus.prometheus_client_interceptor")
PROM_SERVER = optional("py_grpc_prometheus.prometheus_server_interceptor")

METHOD = "/bench.Bench/Echo"
NOBODY = "127.0.0.1:1"
CALLS_PER_ROUND = 200
WORKERS = 4
ROOT = Path(__file__).parents[2]
AGENT = str(Path(stilltrue.__file__).parent)
FUNCTIONS_SYNC_MAX = 25
FUNCTIONS_AIO_MAX = 39
Call = Callable[[bytes], Any]


@dataclass
class Taken:
    """The measurements of one contender: each call's seconds, and each round's seconds and processor seconds per call."""

    seconds: list[float] = field(default_factory=list)
    medians: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)

    def add(self, seconds: list[float], processor: float) -> None:
        """A round is over: ``seconds`` of each call, ``processor`` seconds of all of them."""
        self.seconds += seconds
        self.medians.append(statistics.median(seconds))
        self.processor.append(processor / len(seconds))

    def beyond(self, other: Taken) -> list[float]:
        """How much longer the median call took than the other's, by round."""
        return [mine - its for mine, its in zip(self.medians, other.medians, strict=True)]


def shuffled(names: Iterable[str], seed: int) -> list[str]:
    """The contenders in another order for each round."""
    return Random(seed).sample(found := list(names), len(found))


def echo(request: bytes, context: Any) -> bytes:
    """The least that a service can do."""
    return request


async def aio_echo(request: bytes, context: Any) -> bytes:
    """The same on an event loop."""
    return request


def handlers(behaviour: Any) -> list[grpc.GenericRpcHandler]:
    """One method."""
    return [grpc.method_handlers_generic_handler("bench.Bench", {"Echo": grpc.unary_unary_rpc_method_handler(behaviour)})]


class Nowhere:
    """A span exporter that discards its spans, the cheapest possible one."""

    def export(self, spans: Any) -> Any:
        """Nothing."""
        return OTEL_EXPORT.SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        """Nothing."""

    def force_flush(self, timeout_millis: int = 0) -> bool:
        """Nothing."""
        return True


def tracers() -> dict[str, Any]:
    """OpenTelemetry without its SDK (the cost of an unused library), and with it."""
    if None in (OTEL, OTEL_CHANNELS, OTEL_API, OTEL_SDK, OTEL_EXPORT):
        return {}
    sdk = OTEL_SDK.TracerProvider()
    sdk.add_span_processor(OTEL_EXPORT.BatchSpanProcessor(Nowhere()))
    return {"OpenTelemetry API only": OTEL_API.NoOpTracerProvider(), "OpenTelemetry SDK": sdk}


# -- sync ----------------------------------------------------------------------------------------------------------------


@contextmanager
def serve(pool: ThreadPoolExecutor, interceptors: list[Any]) -> Iterator[str]:
    """A server in this process; its address."""
    server = grpc.server(pool, handlers=handlers(echo), interceptors=interceptors)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(0)


def open_sync(stack: ExitStack, *, others: bool = True) -> dict[str, Call]:
    """Each contender's call; ``others``: not only plain gRPC's and the agent's."""

    def dial(address: str) -> Any:
        return stack.enter_context(grpc.insecure_channel(address))

    calls: dict[str, Call] = {}
    calls["plain"] = dial(stack.enter_context(serve(ThreadPoolExecutor(WORKERS), []))).unary_unary(METHOD)
    client = stack.enter_context(Agent("client", instance="client", detector=NOBODY))
    server = stack.enter_context(Agent("server", instance="server", detector=NOBODY))
    address = stack.enter_context(serve(server.pool(ThreadPoolExecutor(WORKERS)), [server.server_interceptor()]))
    calls["stilltrue"] = client.channel(dial(address)).unary_unary(METHOD)
    for name, tracer in tracers().items() if others else ():
        interceptor = OTEL.server_interceptor(tracer_provider=tracer)
        address = stack.enter_context(serve(ThreadPoolExecutor(WORKERS), [interceptor]))
        channel = OTEL_CHANNELS.intercept_channel(dial(address), OTEL.client_interceptor(tracer_provider=tracer))
        calls[name] = channel.unary_unary(METHOD)
    if others and PROM_CLIENT is not None and PROM_SERVER is not None:
        address = stack.enter_context(serve(ThreadPoolExecutor(WORKERS), [PROM_SERVER.PromServerInterceptor()]))
        intercepted: Any = grpc.intercept_channel(dial(address), PROM_CLIENT.PromClientInterceptor())
        calls["py-grpc-prometheus"] = intercepted.unary_unary(METHOD)
    return calls


def measure_sync(rounds: int) -> dict[str, Taken]:
    """What the calls of each contender took."""
    with ExitStack() as stack:
        calls = open_sync(stack)
        taken = {name: Taken() for name in calls}
        for number in range(rounds + 1):
            for name in shuffled(calls, number):
                begun = time.process_time()
                seconds = [_timed(calls[name]) for _ in range(CALLS_PER_ROUND)]
                if number:  # the first round warms up
                    taken[name].add(seconds, time.process_time() - begun)
        return taken


def _timed(call: Call) -> float:
    begun = time.perf_counter()
    reply = call(b"x")
    taken = time.perf_counter() - begun
    assert reply == b"x"
    return taken


# -- aio -----------------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def serve_aio(interceptors: list[Any]) -> AsyncIterator[str]:
    """A server on this loop; its address."""
    server = grpc.aio.server(handlers=handlers(aio_echo), interceptors=interceptors)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(0)


async def open_aio(stack: AsyncExitStack, *, others: bool = True) -> dict[str, Call]:
    """Each contender's call; ``others``: not only plain gRPC's and the agent's."""

    async def dial(address: str, interceptors: list[Any] | None = None) -> Any:
        return await stack.enter_async_context(grpc.aio.insecure_channel(address, interceptors=interceptors))

    calls: dict[str, Call] = {}
    calls["plain"] = (await dial(await stack.enter_async_context(serve_aio([])))).unary_unary(METHOD)
    client = stack.enter_context(Agent("client", instance="client", detector=NOBODY))
    server = stack.enter_context(Agent("server", instance="server", detector=NOBODY))
    address = await stack.enter_async_context(serve_aio([server.aio_server_interceptor()]))
    calls["stilltrue"] = client.channel(await dial(address)).unary_unary(METHOD)
    for name, tracer in tracers().items() if others else ():
        interceptor = OTEL.aio_server_interceptor(tracer_provider=tracer)
        address = await stack.enter_async_context(serve_aio([interceptor]))
        channel = await dial(address, OTEL.aio_client_interceptors(tracer_provider=tracer))
        calls[name] = channel.unary_unary(METHOD)
    return calls


async def measure_aio(rounds: int) -> dict[str, Taken]:
    """What the calls of each contender took."""
    async with AsyncExitStack() as stack:
        calls = await open_aio(stack)
        taken = {name: Taken() for name in calls}
        for number in range(rounds + 1):
            for name in shuffled(calls, number):
                begun = time.process_time()
                seconds = [await _timed_aio(calls[name]) for _ in range(CALLS_PER_ROUND)]
                if number:
                    taken[name].add(seconds, time.process_time() - begun)
        return taken


async def _timed_aio(call: Call) -> float:
    begun = time.perf_counter()
    reply = await call(b"x")
    taken = time.perf_counter() - begun
    assert reply == b"x"
    return taken


# -- Python functions ----------------------------------------------------------------------------------------------------


class Counting:
    """Counts the Python functions of the agent that run in this thread and in those that begin meanwhile.

    The threads that report to the detector are left out: what they look at depends on how long calls take.
    """

    def __init__(self) -> None:
        self._found: Counter[threading.Thread] = Counter()
        self._reporting: set[threading.Thread] = set()

    def __enter__(self) -> Counting:
        threading.setprofile(self._profile)
        sys.setprofile(self._profile)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)

    def so_far(self) -> int:
        return sum(count for thread, count in list(self._found.items()) if thread not in self._reporting)

    def _profile(self, frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(AGENT):
            thread = threading.current_thread()
            self._found[thread] += 1
            if code is Connection._requests.__code__:
                self._reporting.add(thread)


def functions_sync() -> float:
    """How many Python functions of the agent a call runs, both sides together."""
    with Counting() as counting, ExitStack() as stack:
        call = open_sync(stack, others=False)["stilltrue"]
        call(b"x")
        before = counting.so_far()
        for _ in range(CALLS_PER_ROUND):
            call(b"x")
        return (counting.so_far() - before) / CALLS_PER_ROUND


async def functions_aio() -> float:
    """The same on an event loop."""
    async with AsyncExitStack() as stack:
        call = (await open_aio(stack, others=False))["stilltrue"]
        await call(b"x")
        with Counting() as counting:
            for _ in range(CALLS_PER_ROUND):
                await call(b"x")
        return counting.so_far() / CALLS_PER_ROUND


# -- telling -------------------------------------------------------------------------------------------------------------


def table(title: str, taken: dict[str, Taken]) -> str:
    """Medians in microseconds, what each adds to plain gRPC, and that as a multiple of what the agent adds."""
    plain, ours = taken["plain"], statistics.median(taken["stilltrue"].beyond(taken["plain"]))
    heads = ("p50 us", "added us", "x ours", "cpu us", "added us")
    lines = [f"{title}, {len(plain.seconds)} calls each", f"  {'':24}" + "".join(f"{head:>10}" for head in heads)]
    for name, one in taken.items():
        added = statistics.median(one.beyond(plain))
        ratio = f"{added / ours:.1f}" if name != "plain" and ours > 0 else ""
        p50, cpu = statistics.median(one.seconds), statistics.median(one.processor)
        cpu_added = statistics.median(mine - its for mine, its in zip(one.processor, plain.processor, strict=True))
        lines.append(f"  {name:24}{p50 * 1e6:10.1f}{added * 1e6:10.1f}{ratio:>10}{cpu * 1e6:10.1f}{cpu_added * 1e6:10.1f}")
    return "\n".join(lines)


def test_every_contender_works_and_is_in_the_table() -> None:
    for title, taken in (("sync", measure_sync(1)), ("aio", asyncio.run(measure_aio(1)))):
        assert {"plain", "stilltrue"} <= set(taken)
        assert {len(one.seconds) for one in taken.values()} == {CALLS_PER_ROUND}
        text = table(title, taken)
        print(text)
        assert all(name in text for name in taken)


def test_the_table_shows_the_added_cost_and_its_ratio_to_ours() -> None:
    plain, ours, other = Taken(), Taken(), Taken()
    for one, microseconds in ((plain, 100), (ours, 110), (other, 150)):
        one.add([microseconds / 1e6], microseconds / 1e6)
    text = table("sync", {"plain": plain, "stilltrue": ours, "other": other})
    assert text.splitlines()[-1].split() == ["other", "150.0", "50.0", "5.0", "150.0", "50.0"]


def test_a_call_runs_few_functions_of_the_agent() -> None:
    """The count does not depend on the load; what a change adds to the path of every call shows here.

    In a process of its own: what other tests have left behind is collected here, by functions of the agent.
    """
    command = [sys.executable, "-m", "tests.bench.test_agent_cost", "functions"]
    told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=120)
    sync, aio = map(float, told.stdout.split())
    assert 0 < sync <= FUNCTIONS_SYNC_MAX
    assert 0 < aio <= FUNCTIONS_AIO_MAX


if __name__ == "__main__":
    if sys.argv[1:] == ["functions"]:
        print(functions_sync(), asyncio.run(functions_aio()))
        sys.exit()
    ROUNDS = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    print(table("sync", measure_sync(ROUNDS)))
    print(table("aio", asyncio.run(measure_aio(ROUNDS))))
    print(f"Python functions of the agent a call: sync {functions_sync():.1f}, aio {asyncio.run(functions_aio()):.1f}")
