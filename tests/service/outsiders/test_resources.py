"""Memory and descriptors of a detector that outsiders and agents try to exhaust, measured in a separate process."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from stilltrue.v1 import agent_pb2, agent_pb2_grpc, detector_pb2, detector_pb2_grpc, snapshot_pb2

pytestmark = [
    pytest.mark.longer,
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="/proc says what a process uses"),
]
ALONE = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_reconnect_backoff_ms", 500)]
SECONDS_MAX = 60.0
AGENT = """
import asyncio, sys
from tests.service.conftest import FakeProcess

async def main() -> None:
    agents = [FakeProcess(f"p{number}") for number in range(80)]
    await asyncio.gather(*(agent.connect(sys.argv[1]) for agent in agents))
    await asyncio.sleep(600)

asyncio.run(main())
"""


class Measured:
    """A running detector."""

    def __init__(self, process: asyncio.subprocess.Process, address: str) -> None:
        self.pid = process.pid
        self.address = address

    def channel(self) -> grpc.aio.Channel:
        return grpc.aio.insecure_channel(self.address, options=ALONE)

    async def ask(self) -> snapshot_pb2.Verdict:
        async with self.channel() as channel:
            stub: Any = detector_pb2_grpc.DetectorServiceStub(channel)  # type: ignore[no-untyped-call]
            request = detector_pb2.AskRequest(predicate="deadlock")
            answer = await stub.Ask(request, timeout=SECONDS_MAX, wait_for_ready=True)
        verdict: snapshot_pb2.Verdict = answer.verdict
        return verdict

    def peak_bytes(self) -> int:
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) * 1024

    def descriptors(self) -> int:
        return sum(1 for _ in Path(f"/proc/{self.pid}/fd").iterdir())


@contextlib.asynccontextmanager
async def detecting(data: Path, *, descriptors: int | None = None) -> AsyncIterator[Measured]:
    def bound() -> None:
        if descriptors is not None:
            resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))

    with (data / "log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "detector", "serve", "--port", "0", "--http-port", "0", "--data", str(data / "state"),
            "--lease-seconds", "2", "--forget-seconds", "2", stdout=asyncio.subprocess.PIPE, stderr=log, preexec_fn=bound,
        )  # fmt: skip
    try:
        assert process.stdout is not None
        line = (await asyncio.wait_for(process.stdout.readline(), SECONDS_MAX)).decode()
        yield Measured(process, dict(word.partition("=")[::2] for word in line.split())["grpc"])
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def test_large_questions_and_hellos_cost_little_memory(tmp_path: Path) -> None:
    """Before, a dozen questions of 60 MB took 1.4 GB, and thirty hellos of 12 MB took 1.5 GB, which were not given back."""

    async def large_ask(measured: Measured) -> None:
        async with measured.channel() as channel:
            stub: Any = detector_pb2_grpc.DetectorServiceStub(channel)  # type: ignore[no-untyped-call]
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await stub.Ask(detector_pb2.AskRequest(predicate="x" * 60_000_000), timeout=SECONDS_MAX)
            assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED

    async def large_hello(measured: Measured, number: int) -> None:
        async with measured.channel() as channel:
            call = agent_pb2_grpc.AgentServiceStub(channel).Connect(timeout=SECONDS_MAX)  # type: ignore[no-untyped-call]
            process = snapshot_pb2.ProcessId(service="s", instance=f"large-{number}", incarnation=1)
            hello = agent_pb2.Hello(process=process, labels={"x": "y" * 12_000_000})
            with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
                await call.write(agent_pb2.ConnectRequest(hello=hello))
            assert await call.code() is grpc.StatusCode.RESOURCE_EXHAUSTED

    async with detecting(tmp_path) as measured:
        await measured.ask()
        before = measured.peak_bytes()
        for _ in range(3):
            await asyncio.gather(*(large_ask(measured) for _ in range(4)))
        for start in range(0, 60, 3):
            await asyncio.gather(*(large_hello(measured, start + each) for each in range(3)))
        await measured.ask()
        assert measured.peak_bytes() < before + 400 * 2**20


async def test_the_detector_answers_again_after_a_shortage_of_descriptors_and_logs_the_limit(tmp_path: Path) -> None:
    async with detecting(tmp_path, descriptors=64) as measured:
        await measured.ask()
        crowd = await asyncio.create_subprocess_exec(
            sys.executable, "-c", AGENT, measured.address, stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL, cwd=Path(__file__).parents[3],
        )  # fmt: skip
        try:
            async with asyncio.timeout(SECONDS_MAX):
                while measured.descriptors() < 64:
                    await asyncio.sleep(0.05)
        finally:
            crowd.kill()
            await crowd.wait()
        await measured.ask()
        async with asyncio.timeout(SECONDS_MAX):
            while (verdict := await measured.ask()).snapshot.members:
                await asyncio.sleep(0.2)
        assert verdict.holds == snapshot_pb2.HOLDS_UNDETERMINED
    assert 'event="few descriptors" limit=64' in (tmp_path / "log").read_text()
