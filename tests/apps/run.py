"""Runs programs from the package index plain and under `stilltrue run`, and compares: what they print, and who has joined.

``python -m tests.apps.run [NAME ...]``; each in a virtual environment of its own under build/apps, in which nothing of ours is.
The programs are in ``programs/``: they know nothing of the agent, and print lines that begin with RESULT. An attached program
stays until all of its processes have been seen (``programs/watched.py``).
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
ROOMS = ROOT / "build" / "apps"
PROGRAMS = Path(__file__).with_name("programs")
BIN = Path(sys.executable).parent
PROGRAM_SECONDS_MAX = 400
POLL_SECONDS = 0.3


@dataclass(frozen=True, kw_only=True)
class App:
    """One program, what it needs, and how many processes of which service have to be seen."""

    program: str
    needs: tuple[str, ...]
    members: Mapping[str, int]


APPS = {
    "fastapi": App(program="fastapi_calls", needs=("fastapi", "uvicorn", "grpcio", "protobuf"), members={"fastapi_calls": 3}),
    "pubsub": App(program="pubsub_emulated", needs=("google-cloud-pubsub",), members={"pubsub_emulated": 1}),
    "flower": App(program="flower_rounds", needs=("flwr==1.21.0",), members={"flower_rounds": 3}),
    "dagster": App(program="dagster_job", needs=("dagster",), members={"dagster": 1, "dagster_job": 1}),
    "beam": App(program="beam_words", needs=("apache-beam",), members={"beam_words": 1, "sdk_worker_main": 2}),
}


@dataclass
class Watch:
    """Who has been a member while a program ran, and what the agent said it could not see of it."""

    detector: str
    expected: Mapping[str, int]
    all_seen: Path
    """Made once all that are expected have been seen, and are complete."""
    seen: dict[str, dict[str, Any]] = field(default_factory=dict)
    over: threading.Event = field(default_factory=threading.Event)

    def watch(self) -> None:
        """Ask for the members, again and again."""
        while not self.over.wait(POLL_SECONDS):
            command: list[str | Path] = [BIN / "stilltrue", "agents", "--json", "--detector", self.detector]
            asked = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
            if asked.returncode == 0:
                self.seen |= {agent["process"]: agent for agent in json.loads(asked.stdout)}
            if not self.missing() and not self.blind():
                self.all_seen.touch()

    def missing(self) -> dict[str, int]:
        """Of which services too few processes have been seen, and how many are expected."""
        seen = self.members()
        return {service: count for service, count in self.expected.items() if seen.get(service, 0) < count}

    def members(self) -> dict[str, int]:
        """How many processes of each service."""
        services = [str(agent["service"]) for agent in self.seen.values()]
        return {service: services.count(service) for service in sorted(set(services))}

    def blind(self) -> list[str]:
        """What is incomplete about them."""
        return [f"{name}: {spot}" for name, agent in self.seen.items() for spot in agent["blind"]]


def room_of(name: str) -> Path:
    """The interpreter of this program's environment, which is made if it is not there."""
    room = ROOMS / name
    if not (room / ".ready").exists():
        subprocess.run([BIN / "uv", "venv", "-q", "--clear", "--python", sys.executable, room], check=True)
        subprocess.run([BIN / "uv", "pip", "install", "-q", "--python", room / "bin/python", *APPS[name].needs], check=True)
        (room / ".ready").touch()
    return room / "bin" / "python"


def told(command: list[Any], **more: str) -> list[str]:
    """The results that a program prints."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("STILLTRUE", "OTEL", "PYTHON"))}
    environment |= {"STILLTRUE_BLOCK_SECONDS_MAX": "3600", **more}
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=PROGRAM_SECONDS_MAX, cwd=PROGRAMS, env=environment
    )
    results = [line for line in done.stdout.splitlines() if line.startswith("RESULT")]
    return [*results, f"exit {done.returncode}"] if results else [done.stdout, done.stderr, f"exit {done.returncode}"]


def difference(name: str) -> list[str]:
    """What is different about this program with the agent; empty: nothing."""
    python, program = room_of(name), f"{APPS[name].program}.py"
    plain = told([python, program])
    with tempfile.TemporaryDirectory() as data:
        command: list[str | Path] = [BIN / "stilltrue", "serve", "--port", "0", "--http-port", "0", "--data", data]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as detector:
            watch = Watch(_address(detector), APPS[name].members, Path(data, "all-seen"))
            watcher = threading.Thread(target=watch.watch)
            watcher.start()
            try:
                run = [BIN / "stilltrue", "run", "--detector", watch.detector, "--", python, program]
                attached = told(run, WATCHED=str(watch.all_seen))
            finally:
                watch.over.set()
                watcher.join()
                detector.terminate()
                detector.wait(30)
    found = [] if plain == attached else [f"plain {plain}", f"attached {attached}"]
    if watch.missing():
        found.append(f"not all have joined: {watch.members()}, not {dict(APPS[name].members)}")
    print(f"{name}: {plain}\n  members: {watch.members()}")
    return found + watch.blind()


def _address(detector: subprocess.Popen[str]) -> str:
    assert detector.stdout is not None
    for line in detector.stdout:
        if found := re.search(r"\bgrpc=(\S+)", line):
            threading.Thread(target=detector.stdout.read, daemon=True).start()
            return found[1]
    raise RuntimeError("the detector has not begun")


def main() -> int:
    """Run those that are named, or all; 1 when one is different."""
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", metavar="NAME", choices=[[], *APPS])
    names = parser.parse_args().names or list(APPS)
    failed = False
    for name in names:
        began = time.monotonic()
        found = difference(name)
        failed |= bool(found)
        print(
            f"  {'as before' if not found else 'DIFFERENT'} ({time.monotonic() - began:.0f} s)",
            *found,
            sep="\n    ",
            flush=True,
        )
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
