"""Measures the pipeline on this machine: `python tests/bench/pipeline.py` prints one table, in some ten minutes at most.

Each part runs in a Spark session of its own. `--huge 100000000` adds a graph of so many targets; `--giant 0` leaves giants out.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from detector.archive.files import ArchiveFiles
from detector.archive.units import open_archive
from detector.synthetic.generate import ArchivePlan, generate

HERE = Path(__file__).parent
SHAPES = ("random", "chain", "deep", "component", "star")
PLAIN_SNAPSHOTS = 1000
COMMANDS = (("tiny", 20, "local", 3.0), ("tiny", 20, "spark", 10.0), ("day", 14_400, "local", 6.0))
"""Of which archives the whole command is measured: snapshots of 100 processes, the engine, and the seconds that it may take."""
RUNS = 3
Told = dict[str, Any]


def main() -> None:
    """Generate, evaluate in several ways, on one core and two, and reduce giants."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--snapshots", type=int, default=20_000, help="of 100 processes")
    options.add_argument("--giant", type=int, default=10_000_000, help="targets of the giant graphs; 0: none")
    options.add_argument("--huge", type=int, default=0, help="targets of one more random graph; 0: none")
    options.add_argument("--commands", action="store_true", help="only the whole command, in two minutes")
    options.add_argument("--master", default="local[2]")
    asked = options.parse_args()
    print(f"{asked.master}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        _analyses(Path(folder))
        if asked.commands:
            return
        _archives(Path(folder), asked.snapshots, asked.master)
        if asked.giant:
            _giants(Path(folder), SHAPES, asked.giant, asked.master)
            _named(Path(folder), asked.giant, asked.master)
        if asked.huge:
            _giants(Path(folder), ("random",), asked.huge, asked.master)
    print(f"load {os.getloadavg()[0]:.1f} at the end", flush=True)


def _archives(folder: Path, snapshots: int, master: str) -> None:
    large, small = folder / "large", folder / "small"
    began = time.monotonic()
    _generate(large, snapshots)
    reports = open_archive(str(large)).rows("reports")
    _say({"name": "generate an archive, a process a core", "seconds": time.monotonic() - began, "count": reports})
    _generate(small, PLAIN_SNAPSHOTS)
    two = _part("batch", large, master)
    one = _part("batch", large, "local[1]", " on one core")
    shuffled = _part("shuffle", large, master)
    shuffled_one = _part("shuffle", large, "local[1]", " on one core")
    plain = _part("plain", small, master)
    whole = _rate(two[-1])
    print("whole files against")
    for name, other in (
        ("one core", one[-1]),
        ("a shuffle", shuffled[-1]),
        *((told["name"], told) for told in plain),
    ):
        print(f"  {name:40} {whole / _rate(other):6.1f} times as fast")
    print(f"  {'a shuffle, two cores against one':40} {_rate(shuffled[-1]) / _rate(shuffled_one[-1]):6.1f}", flush=True)


def _analyses(folder: Path) -> None:
    """The command as a user starts it, startup and all; the fastest of three runs, and what its processes used."""
    made: set[str] = set()
    for name, snapshots, engine, seconds_max in COMMANDS:
        if name not in made:
            _generate(folder / name, snapshots)
            made.add(name)
        command = [sys.executable, "-m", "detector", "analyze", str(folder / name), "--engine", engine, "--again"]
        runs = [_timed([*command, "--out", str(folder / f"out-{name}-{engine}")]) for _ in range(RUNS)]
        seconds, used = min(runs)
        reports = open_archive(str(folder / name)).rows("reports")
        more = f"  {used:.1f} CPU seconds; to be under {seconds_max:.0f} s; load {os.getloadavg()[0]:.1f}"
        _say({"name": f"analyze --engine {engine}, {reports} reports", "seconds": seconds, "count": reports}, more=more)


def _timed(command: Sequence[str]) -> tuple[float, float]:
    """How long a command takes, and the processor time of all that it starts (but for Java), in seconds."""
    keeping = {
        name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"
    }  # as most installations do
    began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, capture_output=True, env=keeping)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.monotonic() - began, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _generate(folder: Path, snapshots: int) -> None:
    plan = ArchivePlan(processes=100, snapshots=snapshots, begun=1.79e9, incidents=10, near_misses=10, missing_share=0.0)
    generate(ArchiveFiles(str(folder)), plan, progress=lambda _: None, jobs=os.cpu_count() or 1)


def _giants(folder: Path, shapes: Sequence[str], targets: int, master: str) -> None:
    usual = 0.0
    for shape in shapes:
        place = folder / f"{shape}-{targets}"
        command = [sys.executable, str(HERE / "giant_graphs.py"), shape, str(targets), str(place)]
        parties = int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        (told,) = _part("giant", place, master, parties=parties, quiet=True)
        usual = usual or told["seconds"]
        found = f"{told['blocked']} left, {told['rounds']} rounds, {told['shards']} shards"
        ratio = f"{told['seconds'] / usual:.1f} of the random graph's, " if shape != shapes[0] else ""
        more = f"  {ratio}{found}, {told['peak_megabytes']} MiB in the largest Python"
        _say({"name": f"giant {shape}", "seconds": told["seconds"], "count": targets}, "targets", more)
        (place / "waits.parquet").unlink()


def _named(folder: Path, targets: int, master: str) -> None:
    """The random graph again, its parties by name."""
    place = folder / "names"
    command = [sys.executable, str(HERE / "giant_graphs.py"), "random", str(targets), str(place), "names"]
    subprocess.run(command, check=True, capture_output=True)
    for told in _part("names", place, master, quiet=True):
        found = f"{told['parties']} names" if "parties" in told else f"{told['blocked']} left"
        _say({**told, "count": targets}, "targets", f"  {found}, {told['peak_megabytes']} MiB in the largest Python")


def _part(part: str, folder: Path, master: str, more: str = "", *, parties: int = 0, quiet: bool = False) -> list[Told]:
    command = [sys.executable, str(HERE / "pipeline_part.py"), part, str(folder), "--master", master]
    done = subprocess.run(
        [*command, "--parties", str(parties)],
        check=False,
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(HERE)},  # Spark's Python workers import our neighbours too
    )
    if done.returncode:
        sys.exit(f"{' '.join(command)}: {done.stderr[-3000:]}")
    told: list[Told] = [json.loads(line) for line in done.stdout.splitlines()]
    for each in told if not quiet else ():
        _say({**each, "name": each["name"] + more})
    return told


def _rate(told: Told) -> float:
    return float(told["count"] / told["seconds"])


def _say(told: Told, unit: str = "reports", more: str = "") -> None:
    rate = f"{_rate(told) / 1000:,.0f}k {unit}/s"
    print(f"{told['name']:45} {told['seconds']:8.1f} s {rate:>20}{more}", flush=True)


if __name__ == "__main__":
    main()
