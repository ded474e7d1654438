"""Measures what an agent costs beside gRPC while nothing happens: python tests/bench/agent_footprint.py [--runs N]

Processor time of the import, and of a second without calls (with a detector and without one); memory, and memory of outstanding
calls. Each figure is that of a process of its own (agent_footprint_part.py); memory is what the kernel counts (Linux).
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import grpc.aio

from detector.service.app import running
from detector.service.settings import Settings
from tests.bench.agent_footprint_part import CALLS, NOBODY

PART = str(Path(__file__).with_name("agent_footprint_part.py"))


async def main() -> None:
    """Print a line for each figure: the least and the greatest of several processes."""
    options = argparse.ArgumentParser()
    options.add_argument("--runs", type=int, default=5)
    runs = options.parse_args().runs
    with tempfile.TemporaryDirectory() as folder:
        async with running(Settings(port=0, http_port=0, data=Path(folder)), []) as listening:
            detector = listening.grpc
            ticks = grpc.aio.server()
            ticks.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("bench", {"Ticks": TICKS})])
            ticking = f"127.0.0.1:{ticks.add_insecure_port('127.0.0.1:0')}"
            await ticks.start()
            for what, unit, arguments in (
                ("from stilltrue import Agent, after grpc", "ms of processor time", ("imported",)),
                ("an idle agent without a detector", "ms of processor time a second", ("idle", NOBODY)),
                ("an idle agent with a detector", "ms of processor time a second", ("idle", detector)),
                ("gRPC alone, a message each way a second", "ms of processor time a second", ("stream", ticking)),
                ("a joined agent beside gRPC", "MB", ("memory", detector)),
                (f"{CALLS} calls outstanding at a caller", "MB", ("made",)),
                (f"{CALLS} calls at a server", "MB", ("served",)),
            ):
                found = sorted([await asyncio.to_thread(measured, *arguments) for _ in range(runs)])
                print(f"{what:40} {found[0]:7.2f} to {found[-1]:7.2f} {unit}", flush=True)
            await ticks.stop(None)


async def ticked(requests: AsyncIterator[bytes], _: object) -> AsyncIterator[bytes]:
    """A message every second, until the caller is gone; what it sends is read and dropped."""

    async def drop() -> None:
        async for _request in requests:
            pass

    dropping = asyncio.create_task(drop())
    try:
        while True:
            yield bytes(20)
            await asyncio.sleep(1)
    finally:
        dropping.cancel()


TICKS: grpc.RpcMethodHandler[bytes, bytes] = grpc.stream_stream_rpc_method_handler(ticked)


def measured(*arguments: str) -> float:
    """One figure."""
    done = subprocess.run([sys.executable, PART, *arguments], capture_output=True, text=True, check=True, timeout=120)
    return float(done.stdout)


if __name__ == "__main__":
    asyncio.run(main())
