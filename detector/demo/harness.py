"""The harness: starts a detector and the processes of a scene, directs them, and always stops what it started."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from detector.demo.process import load_scene

START_SECONDS_MAX = 30.0
STOP_SECONDS_MAX = 15.0

SAFE_PATH = {"PYTHONSAFEPATH": "1"}
"""For Python's children: a folder called `stilltrue` where the user stands (a clone, say) is not taken for the package."""


class HarnessError(RuntimeError):
    """A process of ours did not start or died; the text says which, and what it said last."""


class ManagedProcess:
    """A process that we started: its lines as they come, its end when we want it."""

    def __init__(self, name: str, arguments: list[str], *, environment: Mapping[str, str], log: Path) -> None:
        """Start ``arguments``; what it says on standard error goes to the file ``log``."""
        self.name = name
        self.log = log
        self.lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        with log.open("ab") as errors:
            self.process = subprocess.Popen(
                arguments,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env={**os.environ, **SAFE_PATH, **environment},
                start_new_session=True,
                text=True,
            )
        threading.Thread(target=self._read, daemon=True, name=f"read-{name}").start()

    def _read(self) -> None:
        for line in self._pipe(self.process.stdout):
            self.lines.put(line)
        self.lines.put(None)

    @staticmethod
    def _pipe(pipe: IO[str] | None) -> IO[str]:
        if pipe is None:
            raise AssertionError("every process has its pipes")
        return pipe

    def line(self, seconds_max: float = START_SECONDS_MAX) -> str:
        """The next line that it printed."""
        try:
            line = self.lines.get(timeout=seconds_max)
        except queue.Empty:
            raise HarnessError(f"{self.name} said nothing for {seconds_max:g} s; see {self.log}") from None
        if line is None:
            raise HarnessError(f"{self.name} ended ({self.process.wait()}); see {self.log}:\n{self._last_words()}")
        return line

    def tell(self, command: Mapping[str, Any]) -> None:
        """Send it one command."""
        pipe = self._pipe(self.process.stdin)
        pipe.write(json.dumps(command) + "\n")
        pipe.flush()

    def send(self, signal_number: int) -> None:
        """Send the process a signal (it is ours, by its id)."""
        self.process.send_signal(signal_number)

    def stop(self, how: int = signal.SIGTERM) -> None:
        """End the process and wait until it is gone."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.send_signal(how)
            try:
                self.process.wait(STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        with contextlib.suppress(BrokenPipeError):
            self._pipe(self.process.stdin).close()

    def _last_words(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-5:])


class Harness:
    """A detector and the processes of scenes. A context manager: leaving it stops them all."""

    def __init__(self, folder: Path) -> None:
        """``folder`` takes the logs and the detector's data; it is made when it is not there."""
        self.folder = folder
        self.folder.mkdir(parents=True, exist_ok=True)
        self.processes: dict[str, ManagedProcess] = {}
        self.detector = ""
        self.http = ""

    def __enter__(self) -> Harness:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start_detector(self, *flags: str, ports: tuple[int, int] = (0, 0)) -> ManagedProcess:
        """Start ``stilltrue serve`` and wait until it listens; ``detector`` and ``http`` are its addresses then."""
        command = [sys.executable, "-m", "detector", "serve"]
        command += ["--port", str(ports[0]), "--http-port", str(ports[1]), "--data", str(self.folder / "data"), *flags]
        process = self._start("detector", command, {})
        self.detector = self.http = ""
        while not self.detector:
            line = process.line()
            if found := re.search(r"\bgrpc=(\S+) metrics=http://(\S+)/metrics", line):
                self.detector, self.http = found.groups()
        return process

    def start_scene(self, where: str) -> None:
        """Start every process of the scene ``module:NAME``, and tell each where the others listen."""
        scene = load_scene(where)
        names = [*scene.services, *scene.loads]
        for name in names:
            self.start_process(where, name)
        listening = {name: self.address(name) for name in names}
        addresses = {name: listening[name] for name in scene.services}
        for name in names:
            self.processes[name].tell({"addresses": addresses})
        for name in names:
            while not json.loads(self.processes[name].line()).get("ready"):
                pass
        for name in scene.loads:
            self.processes[name].tell({"begin": True})

    def start_process(self, where: str, name: str) -> ManagedProcess:
        """Start one process of a scene; it waits for the addresses."""
        return self._start(
            name, [sys.executable, "-m", "detector.demo.process", where, name], {"STILLTRUE_DETECTOR": self.detector}
        )

    def address(self, name: str) -> str:
        """Where the process ``name`` listens; waits for its first line."""
        return f"127.0.0.1:{json.loads(self.processes[name].line())['port']}"

    def stats(self, name: str) -> dict[str, int]:
        """The newest numbers of a caller: calls done, failed and waiting."""
        process = self.processes[name]
        line = process.line()
        while not process.lines.empty():
            line = process.line()
        return dict(json.loads(line))

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run ``stilltrue`` with these arguments against our detector."""
        return subprocess.run(
            [sys.executable, "-m", "detector", *arguments],
            env={**os.environ, **SAFE_PATH, "STILLTRUE_DETECTOR": self.detector},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    def stop(self) -> None:
        """Stop all that we started: the detector last, so that it sees the others leave."""
        for process in [a for a in self._in_order() if a.name != "detector"]:
            process.send(signal.SIGKILL if process.process.poll() is None else 0)
            process.stop()
        if "detector" in self.processes:
            self.processes["detector"].stop()
        self.processes.clear()

    def _in_order(self) -> Iterator[ManagedProcess]:
        yield from reversed(self.processes.values())

    def _start(self, name: str, arguments: list[str], environment: Mapping[str, str]) -> ManagedProcess:
        process = ManagedProcess(name, arguments, environment=environment, log=self.folder / f"{name}.log")
        self.processes[name] = process
        return process
