"""What the assembly of large fleets costs: ``python -m tests.bench.fleet.assembled 1000 3000 10000`` prints a table and fits.

Reports of realistic size are written to a real broker as collectors write them, followed by their header, and
``stilltrue assemble`` returns the result. There are no agents and no coordinator: ``tests.bench.fleet.collected`` has them.
A fit over several sizes gives the slope, and ``--for 100000`` extrapolates it. With ``--churn 1`` no report equals the previous
one, as in a fleet larger than what a worker remembers.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from detector.assembly.cluster import REPORTS, RESULTS, Cluster
from detector.assembly.kafka import RecordConsumer, RecordProducer, make_topics
from detector.assembly.records import Header, header_record, key_of, report_record
from detector.assembly.results import Result, message_of
from stilltrue.model import ProcessId, ProcessName, SnapshotId
from tests.bench.fleet.bodies import Fleet
from tests.bench.fleet.collected import used_seconds
from tests.bench.fleet.members import REPORT_TAG, varint
from tests.collector.machines import Machines

FLEET = "bench"
AT_ONCE = 500
SECONDS_MAX = 600.0
PARTS = ("written (s)", "answer (s)", "broker (s)", "assembly (s)", "writer (s)", "reports (MB)", "largest process (MB)")
HEAD = f"| members | holds | {' | '.join(PARTS)} |\n|--:|---|{'--:|' * len(PARTS)}\n"


class _Assembly:
    """A broker and an assembly, and what they say."""

    def __init__(self, folder: Path) -> None:
        self.machines = Machines(folder)
        self.cluster = Cluster(self.machines.start_broker())
        make_topics(self.cluster)
        spark = ("--master", "local[2]", "--partitions", "2", "--give-up-seconds", str(SECONDS_MAX))
        self.machines.start_ours("assembly", "assemble", "--kafka", self.cluster.servers, "--out", "out", *spark)
        self.producer = RecordProducer(self.cluster)
        self._results: asyncio.Queue[Result] = asyncio.Queue()
        self._consumer = RecordConsumer(self.cluster, RESULTS, self._take)

    def _take(self, record: bytes) -> None:
        said = message_of(record)[1]
        assert isinstance(said, Result), "nobody is suspected in this fleet"
        self._results.put_nowait(said)

    async def snapshot(self, number: int, reports: Sequence[bytes], processes: Sequence[ProcessId]) -> tuple[float, float, str]:
        """Seconds until all reports are kept, seconds from the header to the result, and what it holds."""
        key, begun = key_of(FLEET, number), time.time()
        began = time.monotonic()
        for low in range(0, len(reports), AT_ONCE):
            await asyncio.gather(*(self.producer.put(REPORTS, key, report) for report in reports[low : low + AT_ONCE]))
        written = time.monotonic()
        header = Header(
            fleet=FLEET, snapshot=SnapshotId(number), begun=begun, ended=time.time(), begun_by="bench",
            reported=tuple(processes), predicates=("deadlock", "gridlock"),
        )  # fmt: skip
        await self.producer.put(REPORTS, key, header_record(header))
        result = await asyncio.wait_for(self._results.get(), SECONDS_MAX)
        assert not result.assembled.snapshot.missing
        return written - began, time.monotonic() - written, result.verdicts[0].holds.value

    def used(self) -> dict[str, float]:
        parts = {f"{name} (s)": used_seconds(self.machines.pid(name)) for name in ("broker", "assembly")}
        return parts | {"writer (s)": time.process_time()}

    def close(self) -> None:
        self._consumer.close()
        self.producer.close()
        self.machines.close()


def _largest_megabytes(session: int) -> float:
    """The peak memory of the largest process of a session."""
    found = [0]
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            if os.getsid(int(status.parent.name)) == session:
                lines = dict(line.split(":", 1) for line in status.read_text().splitlines())
                found.append(int(lines["VmHWM"].split()[0]))
        except (OSError, KeyError):
            continue
    return max(found) / 1024


def _reports(fleet: Fleet, snapshot: int) -> list[bytes]:
    made = (fleet.report(index, snapshot, snapshot - 1) for index in range(fleet.members))
    return [report_record(REPORT_TAG + bytes(varint(len(report))) + report) for report in made]


async def _measured(members: int, snapshots: int, churn: float) -> dict[str, Any]:
    fleet = Fleet(members=members, churn=churn)
    named = (fleet.process(index) for index in range(members))
    processes = [
        ProcessId(service=each.service, instance=ProcessName(each.instance), incarnation=each.incarnation) for each in named
    ]
    with tempfile.TemporaryDirectory() as folder:
        running = _Assembly(Path(folder))
        try:
            small = Fleet(members=10)
            await running.snapshot(1, _reports(small, 1), processes[:10])  # Spark is warm afterwards
            before = running.used()
            numbers = range(2, snapshots + 2)
            found = [await running.snapshot(number, _reports(fleet, number), processes) for number in numbers]
            after = running.used()
            memory = _largest_megabytes(running.machines.pid("assembly"))
        finally:
            running.close()
    size = sum(map(len, _reports(fleet, 1))) / 1e6
    parts = {name: (after[name] - before[name]) / snapshots for name in after}
    written, answer = (float(np.median([each[at] for each in found])) for at in (0, 1))
    told = {"written (s)": written, "answer (s)": answer, "reports (MB)": size, "largest process (MB)": memory}
    return {"members": members, "holds": ", ".join(sorted({each[2] for each in found})), **parts, **told}


def _fit(found: Sequence[Mapping[str, Any]], size: int) -> None:
    for part in PARTS:
        slope, start = np.polyfit([one["members"] for one in found], [one[part] for one in found], 1)
        sys.stdout.write(f"\n{part}: {start:.2f} + {1000 * slope:.3f} for each 1,000 members; {size:,}: ")
        sys.stdout.write(f"{start + slope * size:.0f} (extrapolated)\n")


def main() -> None:
    """Print the table and, over several sizes, a line for each part."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("members", type=int, nargs="*", default=[1000, 3000, 10_000])
    parser.add_argument("--snapshots", type=int, default=3)
    parser.add_argument("--churn", type=float, default=0.0, help="share of the fleet whose calls are replaced in each snapshot")
    parser.add_argument("--for", dest="size", type=int, default=100_000, help="the size to extrapolate the figures to")
    given = parser.parse_args()
    sys.stdout.write(f"load {os.getloadavg()[0]:.1f}\n\n{HEAD}")
    found = []
    for members in given.members:
        one = asyncio.run(_measured(members, given.snapshots, given.churn))
        found.append(one)
        sys.stdout.write(f"| {members} | {one['holds']} | {' | '.join(f'{one[part]:.2f}' for part in PARTS)} |\n")
        sys.stdout.flush()
    if len(found) > 1:
        _fit(found, given.size)
    sys.stdout.write(f"\nload {os.getloadavg()[0]:.1f} at the end\n")


if __name__ == "__main__":
    main()
