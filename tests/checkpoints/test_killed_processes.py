"""Three real processes, killed without warning, are restored from one snapshot file with the messages in transit."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from detector.checkpoints.storage.snapshot_codec import LiveSnapshot, read_channels

pytestmark = pytest.mark.live
NAMES = ("p0", "p1", "p2")

PROGRAM = '''
import asyncio, sys
from pathlib import Path
from detector.checkpoints.storage.snapshot_codec import read_channels, write_channels
from stilltrue.fifo import Topology, channel
from stilltrue.fifo.process import FifoProcess

name, folder, restore_from = sys.argv[1], Path(sys.argv[2]), sys.argv[3:]
names = ["p0", "p1", "p2"]

class Coins:
    """Every coin that comes is passed on to the next process, for ever."""
    held = 0
    def state(self): return b"%d" % self.held
    def restore(self, state): self.held = int(state)
    def received(self, on, payload, send):
        send(names[(names.index(name) + 1) % 3], payload)

async def main():
    topology = Topology.of(names, [channel(a, b) for a in names for b in names if a != b])
    restored = read_channels(Path(restore_from[0])) if restore_from else None
    coins = Coins()
    coins.held = 100
    keep = lambda snapshot: write_channels(folder / f"{name}-{snapshot.snapshot}", snapshot)
    process = FifoProcess(name, topology, coins, restored=restored, on_snapshot=keep)
    print(await process.listen(), flush=True)
    line = await asyncio.to_thread(sys.stdin.readline)
    await process.join(dict(pair.split("=") for pair in line.split()))
    if restored is None:
        for n in range(20):
            coins.held -= 1
            process.send(names[(names.index(name) + 1) % 3], b"%s-%d" % (name.encode(), n))
    print("joined", flush=True)
    while (await asyncio.to_thread(sys.stdin.readline)).strip() == "snapshot":
        snapshot = await process.snapshot()
        print(snapshot.snapshot, flush=True)
    await process.close()

asyncio.run(main())
'''


class Processes:
    def __init__(self, folder: Path, *restore_from: Path) -> None:
        script = folder / "program.py"
        script.write_text(PROGRAM)
        self.running = {
            name: subprocess.Popen(
                [sys.executable, str(script), name, str(folder), *map(str, restore_from)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for name in NAMES
        }
        ports = {name: self.hears(name) for name in NAMES}
        for name in NAMES:
            self.says(name, " ".join(f"{other}=127.0.0.1:{port}" for other, port in ports.items()))
        for name in NAMES:
            assert self.hears(name) == "joined"

    def says(self, name: str, line: str) -> None:
        stdin = self.running[name].stdin
        assert stdin is not None
        stdin.write(line + "\n")
        stdin.flush()

    def hears(self, name: str) -> str:
        stdout = self.running[name].stdout
        assert stdout is not None
        return stdout.readline().strip()

    def snapshot(self, name: str) -> int:
        self.says(name, "snapshot")
        return int(self.hears(name))

    def kill(self) -> None:
        for one in self.running.values():
            one.send_signal(signal.SIGKILL)
        for one in self.running.values():
            one.communicate(timeout=10)


def coins(snapshot: LiveSnapshot) -> set[str]:
    return {payload.decode() for many in snapshot.channels.values() for payload in many}


def test_killed_processes_resume_from_the_file_with_every_coin_once(tmp_path: Path) -> None:
    everything = {f"{name}-{n}" for name in NAMES for n in range(20)}
    first = Processes(tmp_path)
    try:
        number = first.snapshot("p1")
    finally:
        first.kill()
    snapshot = read_channels(tmp_path / f"p1-{number}")
    assert coins(snapshot) == everything
    assert sum(map(len, snapshot.channels.values())) == 60
    second = Processes(tmp_path, tmp_path / f"p1-{number}")
    try:
        again = read_channels(tmp_path / f"p2-{second.snapshot('p2')}")
    finally:
        second.kill()
    assert again.snapshot > snapshot.snapshot
    assert {name: int(state) for name, state in again.states.items()} == dict.fromkeys(NAMES, 80)
    assert coins(again) == everything
    assert sum(map(len, again.channels.values())) == 60
