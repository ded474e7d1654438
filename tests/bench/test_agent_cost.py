"""What the agent costs a unary call, both sides together, beside plain gRPC and beside what others put around a call.

    python tests/bench/test_agent_cost.py [ROUNDS]      prints the table: medians, differences, ratios
    pytest tests/bench/test_agent_cost.py               the same with few rounds; asserts behaviour, never times

Every contender has its own server and channel in this one process; rounds are interleaved, so that what else the machine does
falls on all alike. OpenTelemetry and py-grpc-prometheus take part where they are installed.
"""

from __future__ import annotations

import asyncio
import importlib
import statistics
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from typing import Any

import grpc
import grpc.aio

from stilltrue import Agent


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
Call = Callable[[bytes], Any]


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
    """A span exporter that throws away what it is given, as the cheapest of them."""

    def export(self, spans: Any) -> Any:
        """Nothing."""
        return OTEL_EXPORT.SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        """Nothing."""

    def force_flush(self, timeout_millis: int = 0) -> bool:
        """Nothing."""
        return True


def tracers() -> dict[str, Any]:
    """OpenTelemetry without its SDK (what a library costs that nobody reads), and with it."""
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


def open_sync(stack: ExitStack) -> dict[str, Call]:
    """Each contender's call."""

    def dial(address: str) -> Any:
        return stack.enter_context(grpc.insecure_channel(address))

    calls: dict[str, Call] = {}
    calls["plain"] = dial(stack.enter_context(serve(ThreadPoolExecutor(WORKERS), []))).unary_unary(METHOD)
    client = stack.enter_context(Agent("client", instance="client", detector=NOBODY))
    server = stack.enter_context(Agent("server", instance="server", detector=NOBODY))
    address = stack.enter_context(serve(server.pool(ThreadPoolExecutor(WORKERS)), [server.server_interceptor()]))
    calls["stilltrue"] = client.channel(dial(address)).unary_unary(METHOD)
    for name, tracer in tracers().items():
        interceptor = OTEL.server_interceptor(tracer_provider=tracer)
        address = stack.enter_context(serve(ThreadPoolExecutor(WORKERS), [interceptor]))
        channel = OTEL_CHANNELS.intercept_channel(dial(address), OTEL.client_interceptor(tracer_provider=tracer))
        calls[name] = channel.unary_unary(METHOD)
    if PROM_CLIENT is not None and PROM_SERVER is not None:
        address = stack.enter_context(serve(ThreadPoolExecutor(WORKERS), [PROM_SERVER.PromServerInterceptor()]))
        intercepted: Any = grpc.intercept_channel(dial(address), PROM_CLIENT.PromClientInterceptor())
        calls["py-grpc-prometheus"] = intercepted.unary_unary(METHOD)
    return calls


def measure_sync(rounds: int) -> dict[str, list[float]]:
    """Seconds of every call, by contender."""
    with ExitStack() as stack:
        calls = open_sync(stack)
        seconds: dict[str, list[float]] = {name: [] for name in calls}
        for number in range(rounds + 1):
            for name, call in calls.items():
                taken = [_timed(call) for _ in range(CALLS_PER_ROUND)]
                if number:  # the first round warms up
                    seconds[name] += taken
        return seconds


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


async def open_aio(stack: AsyncExitStack) -> dict[str, Call]:
    """Each contender's call."""

    async def dial(address: str, interceptors: list[Any] | None = None) -> Any:
        return await stack.enter_async_context(grpc.aio.insecure_channel(address, interceptors=interceptors))

    calls: dict[str, Call] = {}
    calls["plain"] = (await dial(await stack.enter_async_context(serve_aio([])))).unary_unary(METHOD)
    client = stack.enter_context(Agent("client", instance="client", detector=NOBODY))
    server = stack.enter_context(Agent("server", instance="server", detector=NOBODY))
    address = await stack.enter_async_context(serve_aio([server.aio_server_interceptor()]))
    calls["stilltrue"] = client.channel(await dial(address)).unary_unary(METHOD)
    for name, tracer in tracers().items():
        interceptor = OTEL.aio_server_interceptor(tracer_provider=tracer)
        address = await stack.enter_async_context(serve_aio([interceptor]))
        channel = await dial(address, OTEL.aio_client_interceptors(tracer_provider=tracer))
        calls[name] = channel.unary_unary(METHOD)
    return calls


async def measure_aio(rounds: int) -> dict[str, list[float]]:
    """Seconds of every call, by contender."""
    async with AsyncExitStack() as stack:
        calls = await open_aio(stack)
        seconds: dict[str, list[float]] = {name: [] for name in calls}
        for number in range(rounds + 1):
            for name, call in calls.items():
                taken = [await _timed_aio(call) for _ in range(CALLS_PER_ROUND)]
                if number:
                    seconds[name] += taken
        return seconds


async def _timed_aio(call: Call) -> float:
    begun = time.perf_counter()
    reply = await call(b"x")
    taken = time.perf_counter() - begun
    assert reply == b"x"
    return taken


# -- telling -------------------------------------------------------------------------------------------------------------


def table(title: str, seconds: dict[str, list[float]]) -> str:
    """Medians in microseconds, what each adds to plain gRPC, and that as a multiple of what the agent adds."""
    medians = {name: statistics.median(taken) * 1e6 for name, taken in seconds.items()}
    ours = medians["stilltrue"] - medians["plain"]
    lines = [f"{title}, {len(seconds['plain'])} calls each", f"  {'':24}{'p50 us':>9}{'added us':>10}{'x ours':>8}"]
    for name, median in medians.items():
        added = median - medians["plain"]
        ratio = f"{added / ours:.1f}" if name != "plain" and ours > 0 else ""
        lines.append(f"  {name:24}{median:9.1f}{added:10.1f}{ratio:>8}")
    return "\n".join(lines)


def test_every_contender_answers_and_the_table_names_them_all() -> None:
    for title, seconds in (("sync", measure_sync(1)), ("aio", asyncio.run(measure_aio(1)))):
        assert {"plain", "stilltrue"} <= set(seconds)
        assert {len(taken) for taken in seconds.values()} == {CALLS_PER_ROUND}
        text = table(title, seconds)
        print(text)
        assert all(name in text for name in seconds)


def test_the_table_tells_what_is_added_and_how_many_times_ours() -> None:
    text = table("sync", {"plain": [100e-6], "stilltrue": [110e-6], "other": [150e-6]})
    assert text.splitlines()[-1].split() == ["other", "150.0", "50.0", "5.0"]


if __name__ == "__main__":
    ROUNDS = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    print(table("sync", measure_sync(ROUNDS)))
    print(table("aio", asyncio.run(measure_aio(ROUNDS))))
