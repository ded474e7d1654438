"""The harness: starts a detector and the processes of a scene, controls them, and always stops what it started."""

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
"""For child processes: a directory named ``stilltrue`` in the working directory must not shadow the package."""


class HarnessError(RuntimeError):
    """A process of the harness did not start, or died; the message names it and quotes its last lines."""


class ManagedProcess:
    """A child process, with its output line by line."""

    def __init__(self, name: str, arguments: list[str], *, environment: Mapping[str, str], log: Path) -> None:
        """Start ``arguments``; its standard error goes to the file ``log``."""
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
            raise AssertionError("every process has pipes")
        return pipe

    def line(self, seconds_max: float = START_SECONDS_MAX) -> str:
        """Wait for the next line of output."""
        try:
            line = self.lines.get(timeout=seconds_max)
        except queue.Empty:
            raise HarnessError(f"{self.name} printed nothing for {seconds_max:g} s; see {self.log}") from None
        if line is None:
            raise HarnessError(f"{self.name} exited ({self.process.wait()}); see {self.log}:\n{self._last_lines()}")
        return line

    def tell(self, command: Mapping[str, Any]) -> None:
        """Send a command."""
        pipe = self._pipe(self.process.stdin)
        pipe.write(json.dumps(command) + "\n")
        pipe.flush()

    def send(self, signal_number: int) -> None:
        """Send a signal; for ``SIGSTOP``, wait until the process has stopped, which takes a moment."""
        self.process.send_signal(signal_number)
        if signal_number == signal.SIGSTOP:
            with contextlib.suppress(ChildProcessError):
                os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def stop(self, how: int = signal.SIGTERM) -> None:
        """Stop the process and wait until it has exited."""
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

    def end(self) -> None:
        """Let the process exit cleanly, by closing its input."""
        self._pipe(self.process.stdin).close()
        self.process.wait(STOP_SECONDS_MAX)

    def _last_lines(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-5:])


class Harness:
    """A detector and the processes of scenes. A context manager, which stops them all on exit."""

    def __init__(self, folder: Path) -> None:
        """``folder``: for the logs and the detector's data; created if missing."""
        self.folder = folder
        self.folder.mkdir(parents=True, exist_ok=True)
        self.processes: dict[str, ManagedProcess] = {}
        self.addresses: dict[str, str] = {}
        self.detector = ""
        self.http = ""

    def __enter__(self) -> Harness:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start_detector(self, *flags: str, ports: tuple[int, int] = (0, 0)) -> ManagedProcess:
        """Start ``stilltrue serve`` and wait until it listens; sets ``detector`` and ``http`` to its addresses."""
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
        """Start every process of the scene ``module:NAME`` and connect them."""
        scene = load_scene(where)
        names = [*scene.services, *scene.programs, *scene.loads]
        for name in names:
            self.start_process(where, name)
        listening = {name: self.address(name) for name in names}
        self.addresses = {name: listening[name] for name in (*scene.services, *scene.programs)}
        for name in names:
            self._dial(name)
        for name in scene.loads:
            self.processes[name].tell({"begin": True})

    def restart(self, where: str, name: str) -> None:
        """Restart a program of a scene on the same port, as a rollout does."""
        self.processes[name].end()
        self.start_process(where, name, port=int(self.addresses[name].rpartition(":")[2]))
        self.address(name)
        self._dial(name)

    def _dial(self, name: str) -> None:
        process = self.processes[name]
        process.tell({"addresses": self.addresses})
        while not json.loads(process.line()).get("ready"):
            pass

    def start_process(self, where: str, name: str, *, port: int = 0) -> ManagedProcess:
        """Start one process of a scene; it then waits for the addresses. ``port``: to listen on."""
        command = [sys.executable, "-m", "detector.demo.process", where, name, *([str(port)] if port else [])]
        return self._start(name, command, {"STILLTRUE_DETECTOR": self.detector})

    def address(self, name: str) -> str:
        """The address of the process ``name``; waits for its first line."""
        return f"127.0.0.1:{json.loads(self.processes[name].line())['port']}"

    def stats(self, name: str) -> dict[str, int]:
        """The latest counts of a caller: calls done, failed and waiting."""
        process = self.processes[name]
        line = process.line()
        while not process.lines.empty():
            line = process.line()
        return dict(json.loads(line))

    def run(self, *arguments: str, captured: bool = True) -> subprocess.CompletedProcess[str]:
        """Run ``stilltrue`` with these arguments against this detector; unless ``captured``, it prints to our own outputs."""
        return subprocess.run(
            [sys.executable, "-m", "detector", *arguments],
            env={**os.environ, **SAFE_PATH, "STILLTRUE_DETECTOR": self.detector},
            capture_output=captured,
            text=True,
            check=False,
            timeout=60,
        )

    def stop(self) -> None:
        """Stop every process: the detector last, so that it sees the others leave. If interrupted, kill those that are left."""
        try:
            for process in [a for a in self._in_order() if a.name != "detector"]:
                process.send(signal.SIGKILL if process.process.poll() is None else 0)
                process.stop()
            if "detector" in self.processes:
                self.processes["detector"].stop()
        except BaseException:
            for process in self._in_order():
                process.process.kill()
            raise
        self.processes.clear()

    def _in_order(self) -> Iterator[ManagedProcess]:
        yield from reversed(self.processes.values())

    def _start(self, name: str, arguments: list[str], environment: Mapping[str, str]) -> ManagedProcess:
        process = ManagedProcess(name, arguments, environment=environment, log=self.folder / f"{name}.log")
        self.processes[name] = process
        return process
