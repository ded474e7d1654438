"""Measures one detector, a process of its own, under a fleet that another process plays; all on loopback."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import numpy as np

from stilltrue.v1 import detector_pb2, detector_pb2_grpc, snapshot_pb2
from tests.bench.fleet.bodies import Fleet

JOIN_SECONDS_MAX = 120.0
FIRST_SECONDS_MAX = 120.0
ASK_SECONDS_MAX = 120.0
HEALTH_PAUSE_SECONDS = 0.1
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What one fleet cost. Times in seconds, memory in MB; ``load``: what the load generator used meanwhile, per snapshot.

    ``first``: from the last join until the first snapshot of all was kept, whose reports nobody has read before.
    """

    members: int
    joined: float
    join_processor: float
    join_load: float
    first: float
    snapshots: int
    missing: int
    processor: float
    load: float
    snapshot_p50: float
    snapshot_p99: float
    ask_p50: float
    ask_p99: float
    ask_processor: float
    health_worst: float
    memory: float
    memory_peak: float
    incidents: int
    holds: str


class Process:
    """A child, by its id in ``/proc``."""

    def __init__(self, child: asyncio.subprocess.Process) -> None:
        self._child = child
        self._at = Path(f"/proc/{child.pid}")

    def processor(self) -> float:
        """Seconds of processor used so far."""
        fields = (self._at / "stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    def memory(self, key: str = "VmRSS") -> float:
        """MB: resident now, or ``VmHWM`` at most so far."""
        lines = (self._at / "status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith(key)) / 1024

    async def line(self) -> str:
        """The next line that it prints."""
        assert self._child.stdout is not None
        return (await self._child.stdout.readline()).decode().strip()

    @property
    def pid(self) -> int:
        """Its id."""
        return self._child.pid


@contextlib.asynccontextmanager
async def child(*command: str, errors: Path | None = None) -> AsyncIterator[Process]:
    """A Python process, killed in the end."""
    with contextlib.ExitStack() as stack:
        said = asyncio.subprocess.DEVNULL if errors is None else stack.enter_context(errors.open("ab"))
        process = await asyncio.create_subprocess_exec(
            sys.executable, *command, stdout=asyncio.subprocess.PIPE, stderr=said,
            env={**os.environ, "GRPC_VERBOSITY": "NONE"}, cwd=Path(__file__).parents[3],
        )  # fmt: skip
        try:
            yield Process(process)
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()


@dataclass(slots=True)
class Asked:
    """The questions of one window: how long each took, and the answers."""

    seconds: list[float]
    holds: set[str]


class Watcher:
    """Asks a detector how it is."""

    def __init__(self, address: str, web: str) -> None:
        channel = grpc.aio.insecure_channel(address)
        self._stub: Any = detector_pb2_grpc.DetectorServiceStub(channel)  # type: ignore[no-untyped-call]
        self._web = web

    async def snapshots(self, limit: int = 200) -> list[detector_pb2.SnapshotSummary]:
        """The newest snapshots."""
        answer = await self._stub.ListSnapshots(detector_pb2.ListSnapshotsRequest(limit=limit), timeout=ASK_SECONDS_MAX)
        return list(answer.snapshots)

    async def incidents(self) -> int:
        """How many incidents were opened so far."""
        answer = await self._stub.ListIncidents(detector_pb2.ListIncidentsRequest(limit=100_000), timeout=ASK_SECONDS_MAX)
        return len(answer.incidents)

    async def asks(self, seconds: float, pause: float) -> Asked:
        """One question after the other, with a pause in between."""
        asked, end = Asked([], set()), time.monotonic() + seconds
        while not asked.seconds or time.monotonic() < end:
            begun = time.monotonic()
            try:
                answer = await self._stub.Ask(detector_pb2.AskRequest(predicate="deadlock"), timeout=ASK_SECONDS_MAX)
                asked.holds.add(snapshot_pb2.Holds.Name(answer.verdict.holds).removeprefix("HOLDS_"))
            except grpc.aio.AioRpcError as error:
                asked.holds.add(error.code().name)
            asked.seconds.append(time.monotonic() - begun)
            await asyncio.sleep(pause)
        return asked

    async def health(self, worst: list[float]) -> None:
        """Ask for the detector's health again and again."""
        while True:
            begun = time.monotonic()
            with contextlib.suppress(urllib.error.URLError, OSError):
                await asyncio.to_thread(self._healthy)
            worst[0] = max(worst[0], time.monotonic() - begun)
            await asyncio.sleep(HEALTH_PAUSE_SECONDS)

    def _healthy(self) -> None:
        with urllib.request.urlopen(f"http://{self._web}/healthz", timeout=60) as answer:
            answer.read()


async def measured(
    fleet: Fleet, *, seconds: float, warm: float, serve: tuple[str, ...] = (), profile: str = "", whole: bool = False
) -> Measured:
    """One fleet against a new detector: ``seconds`` of quiet, then as long with questions beside."""
    with tempfile.TemporaryDirectory() as data:
        command = (
            "-m",
            "detector",
            "serve",
            "--port",
            "0",
            "--http-port",
            "0",
            "--data",
            data,
            "--members-max",
            "100000",
            *serve,
        )
        async with contextlib.AsyncExitStack() as stack:
            detector = await stack.enter_async_context(child(*command, errors=Path(data) / "log"))
            words = dict(word.split("=", 1) for word in (await detector.line()).split() if "=" in word)
            started = detector.processor()
            load = await stack.enter_async_context(child(*load_command(fleet, words["grpc"]), *["--whole"] * whole))
            watcher = Watcher(words["grpc"], words["pages"].removeprefix("http://").rstrip("/"))
            worst = [0.0]
            health = asyncio.create_task(watcher.health(worst))
            stack.callback(health.cancel)
            async with asyncio.timeout(JOIN_SECONDS_MAX):
                joined = float((await load.line()).split()[1])
            join_processor, join_load = detector.processor() - started, load.processor()
            first = await _first(fleet, watcher)
            await asyncio.sleep(warm)
            if profile:
                await stack.enter_async_context(_profiled(detector.pid, profile, seconds))
            quiet = await _quiet(fleet, detector, load, watcher, seconds)
            before, used = len(await watcher.snapshots(10_000)), detector.processor()
            asked = await watcher.asks(seconds, 0.2)
            during = len(await watcher.snapshots(10_000)) - before
            return Measured(
                members=fleet.members,
                joined=joined,
                join_processor=join_processor,
                join_load=join_load,
                first=first,
                **quiet,
                ask_p50=_percentile(asked.seconds, 50),
                ask_p99=_percentile(asked.seconds, 99),
                ask_processor=(detector.processor() - used) / max(1, during),
                health_worst=worst[0],
                memory=detector.memory(),
                memory_peak=detector.memory("VmHWM"),
                incidents=await watcher.incidents(),
                holds=", ".join(sorted(asked.holds)),
            )


async def _first(fleet: Fleet, watcher: Watcher) -> float:
    begun = time.monotonic()
    async with asyncio.timeout(FIRST_SECONDS_MAX):
        while all(one.ref.members < fleet.members for one in await watcher.snapshots(1)):
            await asyncio.sleep(0.1)
    return time.monotonic() - begun


async def _quiet(fleet: Fleet, detector: Process, load: Process, watcher: Watcher, seconds: float) -> dict[str, Any]:
    first = max((one.ref.id for one in await watcher.snapshots(1)), default=0)
    used, other = detector.processor(), load.processor()
    await asyncio.sleep(seconds)
    used, other = detector.processor() - used, load.processor() - other
    taken = [one for one in await watcher.snapshots() if one.ref.id > first]
    took = [one.ref.ended - one.ref.begun for one in taken]
    return {
        "snapshots": len(taken),
        "missing": max((len(one.missing) for one in taken), default=fleet.members),
        "processor": used / max(1, len(taken)),
        "load": other / max(1, len(taken)),
        "snapshot_p50": _percentile(took, 50),
        "snapshot_p99": _percentile(took, 99),
    }


def _percentile(values: list[float], percent: float) -> float:
    return float(np.percentile(values, percent)) if values else float("nan")


def load_command(fleet: Fleet, address: str) -> tuple[str, ...]:
    """What plays the fleet, as arguments of Python."""
    return (
        "-m", "tests.bench.fleet.members", address, str(fleet.members), "--entries", str(fleet.entries),
        "--churn", str(fleet.churn), "--deadlocks", str(fleet.deadlocks),
    )  # fmt: skip


@contextlib.asynccontextmanager
async def _profiled(pid: int, path: str, seconds: float) -> AsyncIterator[None]:
    """py-spy, if it is there, beside the measurement."""
    spy = Path(sys.executable).parent / "py-spy"
    arguments = ("record", "-p", str(pid), "-d", str(int(seconds)), "-r", "200", "-o", path, "-f", "raw", "--gil")
    process = await asyncio.create_subprocess_exec(str(spy), *arguments, stdout=asyncio.subprocess.DEVNULL)
    try:
        yield
    finally:
        await process.wait()


def as_json(found: Measured) -> str:
    """One line."""
    return json.dumps({name: getattr(found, name) for name in Measured.__slots__})
