"""What a fleet costs behind collectors: ``python -m tests.bench.fleet.collected 300 1000 3000`` prints a table and fits.

Each size gets a new broker, coordinator, two collectors and Spark. Snapshots are requested one after the other. Processor
seconds are those of each process and all that it has started.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import grpc.aio
import numpy as np

from stilltrue.v1 import detector_pb2, detector_pb2_grpc, snapshot_pb2
from tests.collector.machines import Machines
from tests.free_ports import free_port

COLLECTORS = 2
SECONDS_MAX = 600
PARTS = ("coordinator", "collectors", "broker", "assembly", "load")
HEAD = (
    "| members | joined (s) | answers | missing | ask p50, max (s) | "
    + " | ".join(f"{part} (s)" for part in PARTS)
    + " |\n|--:|--:|---|--:|--:|"
    + "--:|" * len(PARTS)
    + "\n"
)
_TICKS = os.sysconf("SC_CLK_TCK")


def used_seconds(session: int) -> float:
    """Seconds of processor of a session's processes so far, of those that have ended in it too.

    Not of a group's: Spark's Python workers make one of their own.
    """
    used = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == session:
            used += sum(map(int, fields[11:15]))
    return used / _TICKS


def _parts(machines: Machines) -> dict[str, float]:
    found = {name: used_seconds(machines.pid(name)) for name in ("coordinator", "broker", "assembly", "load")}
    return found | {"collectors": sum(used_seconds(machines.pid(f"collector-{number}")) for number in range(COLLECTORS))}


async def _measured(members: int, snapshots: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        machines = Machines(Path(folder))
        try:
            return await _measured_with(machines, members, snapshots)
        finally:
            machines.close()


async def _measured_with(machines: Machines, members: int, snapshots: int) -> dict[str, Any]:
    kafka, port = machines.start_broker(), free_port()
    ports = [free_port() for _ in range(COLLECTORS)]
    patient = ("--give-up-seconds", "60", "--suspect-seconds", "60", "--lease-seconds", "30", "--members-max", "200000")
    machines.start_ours(
        "coordinator", "serve", "--kafka", kafka, "--port", str(port), "--http-port", "0", "--period-seconds", "0",
        "--data", "data", "--assembly-seconds-max", str(SECONDS_MAX), *patient,
    )  # fmt: skip
    for number, own in enumerate(ports):
        machines.start_ours(
            f"collector-{number}", "collect", "--coordinator", f"127.0.0.1:{port}", "--kafka", kafka, "--port", str(own)
        )
    machines.start_ours("assembly", "assemble", "--kafka", kafka, "--out", "out", "--master", "local[2]", "--partitions", "2")
    addresses = ",".join(f"127.0.0.1:{own}" for own in ports)
    machines.start("load", sys.executable, "-m", "tests.bench.fleet.members", addresses, str(members), "--whole")
    joined = await _joined(machines)
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        stub: Any = detector_pb2_grpc.DetectorServiceStub(channel)  # type: ignore[no-untyped-call]
        await _ask(stub)  # Spark is warm afterwards
        await _ask(stub)
        before, took, holds, missing = _parts(machines), [], set(), 0
        for _ in range(snapshots):
            begun = time.monotonic()
            verdict = await _ask(stub)
            took.append(time.monotonic() - begun)
            holds.add(snapshot_pb2.Holds.Name(verdict.holds).removeprefix("HOLDS_"))
            missing = max(missing, len(verdict.missing))
        after = _parts(machines)
    each = {name: (after[name] - before[name]) / snapshots for name in PARTS}
    return {"members": members, "joined": joined, "holds": holds, "missing": missing, "took": took, **each}


async def _ask(stub: Any) -> snapshot_pb2.Verdict:
    answer = await stub.Ask(detector_pb2.AskRequest(predicate="deadlock"), timeout=2 * SECONDS_MAX)
    verdict: snapshot_pb2.Verdict = answer.verdict
    return verdict


async def _joined(machines: Machines) -> float:
    async with asyncio.timeout(SECONDS_MAX):
        while "joined" not in (said := machines.said("load")):
            await asyncio.sleep(0.2)
    return float(said.rpartition("joined ")[2].split()[0])


def main() -> None:
    """Print the table and, over several sizes, a line for each part."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("members", type=int, nargs="*", default=[300, 1000, 3000])
    parser.add_argument("--snapshots", type=int, default=5)
    given = parser.parse_args()
    sys.stdout.write(HEAD)
    found = []
    for members in given.members:
        one = asyncio.run(_measured(members, given.snapshots))
        found.append(one)
        parts = " | ".join(f"{one[part]:.3f}" for part in PARTS)
        answers = ", ".join(sorted(one["holds"]))
        asks = f"{np.percentile(one['took'], 50):.1f}, {max(one['took']):.1f}"
        sys.stdout.write(f"| {members} | {one['joined']:.1f} | {answers} | {one['missing']} | {asks} | {parts} |\n")
        sys.stdout.flush()
    for part in PARTS if len(found) > 1 else ():
        slope, start = np.polyfit([one["members"] for one in found], [one[part] for one in found], 1)
        sys.stdout.write(f"\n{part}: {1000 * start:.0f} ms + {1000 * slope:.3f} ms a member\n")


if __name__ == "__main__":
    main()
