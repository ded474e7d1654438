"""How a fleet comes back to a detector that was killed: ``python -m tests.bench.fleet.restart 1000 --down 2 15``.

The members pause between two attempts as agents do. Seconds count from the moment at which the new detector listens; its log
says when each member was back.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import socket
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import numpy as np

from tests.bench.fleet.bodies import Fleet
from tests.bench.fleet.measure import JOIN_SECONDS_MAX, Process, Watcher, child, load_command

HEAD = "| members | down (s) | half, all back (s) | most in 0.1 s | refused | whole snapshot (s) |\n|--:|--:|--:|--:|--:|--:|\n"
TENTH = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Return:
    """How a fleet came back. Times in seconds since the detector listened again."""

    members: int
    down: float
    back: list[float]
    refused: int
    whole: float

    @property
    def most(self) -> int:
        """How many came back in the fullest tenth of a second."""
        return max(Counter(int(one / TENTH) for one in self.back).values())


async def returned(members: int, down: float) -> Return:
    """Kill the detector of a fleet, start it again after ``down`` seconds, and wait for all."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        async with contextlib.AsyncExitStack() as load:
            async with _detector(Path(folder), port, "before"):
                players = await load.enter_async_context(child(*load_command(Fleet(members=members), f"127.0.0.1:{port}")))
                await _joined(players)
                await asyncio.sleep(1.0)
            await asyncio.sleep(down)
            async with _detector(Path(folder), port, "after") as watcher:
                begun = time.time()
                await _joined(players)
                while not any(one.ref.members == members and not one.missing for one in await watcher.snapshots()):
                    await asyncio.sleep(TENTH)
                whole = time.time() - begun
        log = (Path(folder) / "after").read_text().splitlines()
    back = sorted(_when(line) - begun for line in log if 'event="member back"' in line)
    return Return(
        members=members, down=down, back=back, refused=sum('event="agent refused"' in line for line in log), whole=whole
    )


@contextlib.asynccontextmanager
async def _detector(folder: Path, port: int, log: str) -> AsyncIterator[Watcher]:
    command = ("-m", "detector", "serve", "--port", str(port), "--http-port", "0", "--data", str(folder / "data"))
    async with child(*command, "--members-max", "100000", errors=folder / log) as detector:
        words = dict(word.split("=", 1) for word in (await detector.line()).split() if "=" in word)
        yield Watcher(words["grpc"], words["pages"].removeprefix("http://").rstrip("/"))


async def _joined(load: Process) -> None:
    async with asyncio.timeout(JOIN_SECONDS_MAX):
        while not (await load.line()).startswith("joined"):
            pass


def _when(line: str) -> float:
    return datetime.fromisoformat(line.split(maxsplit=1)[0].removeprefix("time=")).timestamp()


def main() -> None:
    """Print a row for each pause."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("members", type=int, nargs="?", default=1000)
    parser.add_argument("--down", type=float, nargs="*", default=[2.0, 15.0])
    given = parser.parse_args()
    sys.stdout.write(HEAD)
    for down in given.down:
        one = asyncio.run(returned(given.members, down))
        sys.stdout.write(
            f"| {one.members} | {one.down:g} | {np.median(one.back):.1f}, {one.back[-1]:.1f} "
            f"| {one.most} | {one.refused} | {one.whole:.1f} |\n"
        )
        sys.stdout.flush()


if __name__ == "__main__":
    main()
