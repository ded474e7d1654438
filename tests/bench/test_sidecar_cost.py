"""The sidecar's cost for a unary call: p50, calls per second and processor time, compared with direct calls.

    python tests/bench/test_sidecar_cost.py [ROUNDS]    prints the table
    pytest tests/bench/test_sidecar_cost.py             the same with few rounds; asserts behaviour, never times

Program, sidecars and caller are processes of their own. Rounds are interleaved: what else the machine does falls on all.
"""

from __future__ import annotations

import asyncio
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

METHOD = "/bench.Bench/Echo"
NOBODY = "127.0.0.1:1"
CALLS_PER_ROUND = 300
AT_ONCE = 32
PAYLOAD = b"x" * 100
TRACE = (("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),)
PROGRAM = """
import asyncio, grpc, grpc.aio
async def echo(request, context):
    return request
async def main():
    server = grpc.aio.server()
    handler = grpc.method_handlers_generic_handler("bench.Bench", {"Echo": grpc.unary_unary_rpc_method_handler(echo)})
    server.add_generic_rpc_handlers((handler,))
    print(f"listening inbound=127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}", flush=True)
    await server.start()
    await server.wait_for_termination()
asyncio.run(main())
"""
PROXY = """
import asyncio, sys, grpc, grpc.aio
class Through(grpc.GenericRpcHandler):
    def __init__(self, channel):
        self.channel = channel
    def service(self, details):
        call = self.channel.stream_stream(details.method)
        async def relay(requests, context):
            passed = call(requests, metadata=[p for p in context.invocation_metadata() if p[0] != "user-agent"])
            await context.send_initial_metadata(await passed.initial_metadata())
            async for reply in passed:
                yield reply
            context.set_trailing_metadata(await passed.trailing_metadata())
        return grpc.stream_stream_rpc_method_handler(relay)
async def main():
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((Through(grpc.aio.insecure_channel(sys.argv[1])),))
    print(f"listening inbound=127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}", flush=True)
    await server.start()
    await server.wait_for_termination()
asyncio.run(main())
"""
"""The neighbour: the same relaying by grpc.aio's own server and channel, which records nothing and is not transparent."""
BYTES = """
import asyncio, sys
class End(asyncio.Protocol):
    def __init__(self, other=None):
        self.other, self.transport, self.waiting = other, None, []
    def connection_made(self, transport):
        self.transport = transport
        if self.other is None:
            self.other = End(self)
            host, _, port = sys.argv[1].partition(":")
            connecting = asyncio.get_running_loop().create_connection(lambda: self.other, host, port)
            self.task = asyncio.ensure_future(connecting)
        transport.writelines(self.waiting)
    def data_received(self, data):
        to = self.other.transport
        to.write(data) if to is not None else self.other.waiting.append(data)
    def connection_lost(self, _):
        if self.other.transport is not None:
            self.other.transport.close()
async def main():
    server = await asyncio.get_running_loop().create_server(End, "127.0.0.1", 0)
    print(f"listening inbound=127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await server.serve_forever()
asyncio.run(main())
"""
"""The floor: what two sockets and Python's event loop cost when nobody looks at what passes."""


@contextmanager
def started(*arguments: str) -> Iterator[tuple[int, dict[str, str]]]:
    """A process of ours: its id, and the words it prints when it listens."""
    with subprocess.Popen(
        [sys.executable, *arguments], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        try:
            line = process.stdout.readline() if process.stdout else ""
            yield process.pid, dict(word.split("=", 1) for word in line.split() if "=" in word)
        finally:
            process.send_signal(signal.SIGTERM)


def sidecar(*flags: str) -> Any:
    """A sidecar whose detector is not there: the calls cost the same."""
    free = ["--inbound", "127.0.0.1:0", "--outbound", "127.0.0.1:0", "--admin-port", "0", "--drain-seconds-max", "0"]
    return started("-m", "detector", "sidecar", "--service", "bench", "--detector", NOBODY, *free, *flags)


def processor_seconds(process: int) -> float:
    """The processor time that a process has used."""
    fields = Path(f"/proc/{process}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def one_after_the_other(target: str) -> list[float]:
    """Seconds of each of a round of calls."""
    seconds = []
    with grpc.insecure_channel(target, (("grpc.use_local_subchannel_pool", 1),)) as channel:
        call: Any = channel.unary_unary(METHOD)
        for _ in range(CALLS_PER_ROUND):
            begun = time.perf_counter()
            assert call(PAYLOAD, metadata=TRACE) == PAYLOAD
            seconds.append(time.perf_counter() - begun)
    return seconds


async def many_at_once(target: str) -> float:
    """Calls a second with ``AT_ONCE`` callers."""
    async with grpc.aio.insecure_channel(target, (("grpc.use_local_subchannel_pool", 1),)) as channel:
        call: Any = channel.unary_unary(METHOD)

        async def caller() -> None:
            for _ in range(CALLS_PER_ROUND // 4):
                assert await call(PAYLOAD, metadata=TRACE) == PAYLOAD

        begun = time.perf_counter()
        await asyncio.gather(*(caller() for _ in range(AT_ONCE)))
        return AT_ONCE * (CALLS_PER_ROUND // 4) / (time.perf_counter() - begun)


def measure(rounds: int) -> dict[str, tuple[float, float, float]]:
    """For each route: p50 in seconds, calls per second, and processor seconds per call in the processes between."""
    with ExitStack() as stack:
        _, program = stack.enter_context(started("-c", PROGRAM))
        relay, at_relay = stack.enter_context(started("-c", BYTES, program["inbound"]))
        again, at_again = stack.enter_context(started("-c", BYTES, at_relay["inbound"]))
        proxy, at_proxy = stack.enter_context(started("-c", PROXY, program["inbound"]))
        server, at_server = stack.enter_context(sidecar("--app", program["inbound"]))
        client, at_client = stack.enter_context(sidecar("--app", program["inbound"], "--upstream", at_server["inbound"]))
        ways = {
            "around": (program["inbound"], []),
            "through one (in)": (at_server["inbound"], [server]),
            "through two (out, in)": (at_client["outbound"], [client, server]),
            "bytes through one": (at_relay["inbound"], [relay]),
            "bytes through two": (at_again["inbound"], [again, relay]),
            "a proxy of grpc.aio": (at_proxy["inbound"], [proxy]),
        }
        seconds: dict[str, list[float]] = {way: [] for way in ways}
        rates: dict[str, list[float]] = {way: [] for way in ways}
        used: dict[str, float] = dict.fromkeys(ways, 0.0)
        for _ in range(rounds):
            for way, (target, processes) in ways.items():
                before = sum(map(processor_seconds, processes))
                seconds[way] += one_after_the_other(target)
                rates[way].append(asyncio.run(many_at_once(target)))
                used[way] += sum(map(processor_seconds, processes)) - before
        calls = rounds * (CALLS_PER_ROUND + AT_ONCE * (CALLS_PER_ROUND // 4))
        return {way: (statistics.median(seconds[way]), statistics.median(rates[way]), used[way] / calls) for way in ways}


@pytest.mark.not_in_ci
@pytest.mark.longer
def test_the_cost_of_calls_through_a_sidecar() -> None:
    figures = measure(1)
    assert len(figures) == 6
    assert all(p50 > 0 and rate > 0 for p50, rate, _ in figures.values())


def main() -> None:
    """Print the table."""
    figures = measure(int(sys.argv[1]) if len(sys.argv) > 1 else 7)
    base = figures["around"]
    print(f"{'way':24}{'p50':>10}{'more':>10}{'calls/s':>10}{'between uses':>16}")
    for way, (p50, rate, used) in figures.items():
        print(f"{way:24}{p50 * 1e6:7.0f} us{(p50 - base[0]) * 1e6:7.0f} us{rate:10.0f}{used * 1e6:9.0f} us/call")


if __name__ == "__main__":
    main()
