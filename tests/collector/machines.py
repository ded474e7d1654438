"""Real processes on loopback, each of which can be killed: a Kafka broker from Maven's jars, and ours."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from tests.free_ports import free_port

ROOT = Path(__file__).parents[2]
JARS = ROOT / "build" / "kafka"
UP_SECONDS_MAX = 60.0
_PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
log.dirs={logs}
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
auto.create.topics.enable=false
"""


def kafka_classes() -> str:
    """The class path of a broker; it is fetched once."""
    if not any(JARS.glob("kafka_*.jar")):
        if shutil.which("mvn") is None:
            assert os.environ.get("CI") != "true", "Maven is not here"
            pytest.skip("Maven is not here")
        command = ["mvn", "-q", "-B", "-f", str(Path(__file__).with_name("pom.xml"))]
        subprocess.run([*command, "dependency:copy-dependencies", f"-DoutputDirectory={JARS}"], check=True, timeout=600)
    return ":".join(map(str, sorted(JARS.glob("*.jar"))))


class Machines:
    """The processes by name; what they say is in files beside their data."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._commands: dict[str, Sequence[str]] = {}

    def start(self, name: str, *command: str) -> None:
        """Start a process, or with no command one that ran before. It leads a group of its own."""
        self._commands[name] = command or self._commands[name]
        with (self.folder / f"{name}.log").open("ab") as log:
            self._running[name] = subprocess.Popen(
                self._commands[name], stdout=log, stderr=log, cwd=self.folder, start_new_session=True,
                env={**os.environ, "GRPC_VERBOSITY": "NONE", "STILLTRUE_SPARK_LOG_LEVEL": "ERROR", "PYTHONPATH": str(ROOT)},
            )  # fmt: skip

    def kill(self, name: str) -> None:
        """At once, with all that it has started."""
        process = self._running.pop(name)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(30)

    def end(self, name: str) -> int:
        """In good order; its exit code."""
        process = self._running.pop(name)
        process.send_signal(signal.SIGTERM)
        return process.wait(60)

    def kill_worker(self, name: str) -> int:
        """Kill one of the Python workers that its Spark has forked."""
        daemons = _children(self._running[name].pid, "pyspark.daemon")
        worker = next(child for daemon in daemons for child in _children(daemon, "pyspark.daemon"))
        os.kill(worker, signal.SIGKILL)
        return worker

    def pid(self, name: str) -> int:
        return self._running[name].pid

    def said(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def close(self) -> None:
        for name in list(self._running):
            self.kill(name)

    # -- who there is --------------------------------------------------------------------------------------------------

    def start_broker(self) -> str:
        """``HOST:PORT`` of Kafka."""
        port, controller = free_port(), free_port()
        settings = self.folder / "server.properties"
        settings.write_text(_PROPERTIES.format(port=port, controller=controller, logs=self.folder / "kafka"))
        java = ["java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", kafka_classes()]
        format_ = [*java, "kafka.tools.StorageTool", "format", "-t", "MkU3OEVBNTcwNTJENDM2Qg", "-c", str(settings)]
        subprocess.run(format_, check=True, timeout=60, capture_output=True)
        self.start("broker", *java, "kafka.Kafka", str(settings))
        wait_for_port(port)
        return f"127.0.0.1:{port}"

    def start_ours(self, name: str, *arguments: str) -> None:
        self.start(name, sys.executable, "-m", "detector", *arguments)


def wait_for_port(port: int) -> None:
    until = time.monotonic() + UP_SECONDS_MAX
    while time.monotonic() < until:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.1)
    raise AssertionError(f"nobody listens on {port}")


def _children(parent: int, words: str) -> list[int]:
    """The descendants of a process whose command has these words."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            pid = int(stat.parent.name)
            if words in (stat.parent / "cmdline").read_text().replace("\0", " ") and parent in _ancestors(pid):
                found.append(pid)
    return sorted(found)


def _ancestors(pid: int) -> set[int]:
    found: set[int] = set()
    while pid > 1:
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        found.add(pid)
    return found
