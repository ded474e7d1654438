"""The processes under test: a detector that can be killed and started again on its ports, and members behind links."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import shutil
import signal
import sys
import urllib.request
from pathlib import Path

from tests.chaos.link import Link
from tests.free_ports import free_port

STAMP_KEY = "the-stamp-key-of-the-chaos-fleet"
ROOT = Path(__file__).resolve().parents[2]
START_SECONDS_MAX = 60.0
PORTS_TRIED = 3


class Running:
    """A child process, by what it says first."""

    def __init__(self, process: asyncio.subprocess.Process, first: str) -> None:
        self.process = process
        self.first = first

    @property
    def pid(self) -> int:
        return self.process.pid

    def send(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(number)

    async def kill(self) -> None:
        self.send(signal.SIGKILL)
        await self.process.wait()

    async def line(self) -> str:
        assert self.process.stdout is not None
        return (await asyncio.wait_for(self.process.stdout.readline(), START_SECONDS_MAX)).decode().strip()

    async def tell(self, line: str) -> None:
        assert self.process.stdin is not None
        with contextlib.suppress(ConnectionError):
            self.process.stdin.write(f"{line}\n".encode())
            await self.process.stdin.drain()


async def start(*command: str, log: Path, under: tuple[str, ...] = (), **environment: str) -> Running:
    """Start a Python process; ``under``: a command that becomes it."""
    with log.open("ab") as errors:
        process = await asyncio.create_subprocess_exec(
            *under, sys.executable, *command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=errors,
            cwd=ROOT, env={**os.environ, "GRPC_VERBOSITY": "NONE", **environment},
        )  # fmt: skip
    running = Running(process, "")
    running.first = await running.line()
    return running


class Fleet:
    """Everything that runs; :meth:`close` ends it all."""

    def __init__(self, folder: Path, names: tuple[str, ...]) -> None:
        self.folder = folder
        self.data = folder / "data"
        self.names = names
        self.port, self.http_port = free_port(), free_port()
        self.detector: Running | None = None
        self.members: dict[str, Running] = {}
        self.links: dict[str, Link] = {}
        self.clock: Path | None = None
        self._ports: dict[str, int] = {}

    async def open(self) -> None:
        for tries_left in reversed(range(PORTS_TRIED)):
            try:
                await self.start_detector()
            except AssertionError:  # another program has taken the port meanwhile
                if not tries_left:
                    raise
                self.port, self.http_port = free_port(), free_port()
            else:
                break
        for name in self.names:
            self.links[name] = await Link(self.port).start()
            self._ports[name] = 0
        await asyncio.gather(*(self.start_member(name) for name in self.names))

    async def start_detector(self) -> None:
        faked = {}
        library = next(iter(Path("/usr/lib").glob("*/faketime/libfaketime.so.1")), None)
        if library is not None:
            self.clock = self.folder / "clock"
            self.clock.write_text("+0s\n")
            faked = {
                "LD_PRELOAD": str(library), "FAKETIME_TIMESTAMP_FILE": str(self.clock), "FAKETIME_CACHE_DURATION": "1",
                "FAKETIME_DONT_FAKE_MONOTONIC": "1", "DONT_FAKE_MONOTONIC": "1",
            }  # fmt: skip
        where = ("--port", str(self.port), "--http-port", str(self.http_port), "--data", str(self.data))
        times = ("--period-seconds", "0.5", "--lease-seconds", "3", "--suspect-seconds", "1", "--give-up-seconds", "3")
        log = self.folder / "detector.log"
        self.detector = await start("-m", "detector", "serve", *where, *times, log=log, under=self._bound_by_modes(), **faked)
        assert self.detector.first.startswith("listening"), self.detector.first

    @staticmethod
    def _bound_by_modes() -> tuple[str, ...]:
        """What makes file modes count for root, too; empty if they do, or setpriv is not installed."""
        if os.geteuid() or shutil.which("setpriv") is None:
            return ()
        return ("setpriv", "--bounding-set=-dac_override", "--inh-caps=-dac_override")

    @property
    def modes_count(self) -> bool:
        """Whether the detector may be kept from writing by file modes."""
        return bool(os.geteuid() or self._bound_by_modes())

    def read_only(self, yes: bool) -> None:
        """No file of the data directory may be opened for writing, nor be created, renamed or removed; or all may again."""
        for path in [self.data, *self.data.rglob("*")]:
            with contextlib.suppress(FileNotFoundError):
                path.chmod(0o444 | 0o111 * path.is_dir() | (0 if yes else 0o200))

    def writes(self) -> bool:
        """Whether the detector says that it can write its archive."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.http_port}/metrics", timeout=2) as metrics:
                return b"stilltrue_archive_writable 1.0" in metrics.read()
        except OSError:
            return False

    async def start_member(self, name: str) -> None:
        address, port = f"127.0.0.1:{self.links[name].port}", str(self._ports[name])
        self.members[name] = await start(
            "-m", "tests.chaos.member", name, address, port, log=self.folder / f"{name}.log", STILLTRUE_STAMP_KEY=STAMP_KEY
        )
        self._ports[name] = int(self.members[name].first)

    def address(self, name: str) -> str:
        return f"127.0.0.1:{self._ports[name]}"

    async def restart_detector(self) -> None:
        assert self.detector is not None
        await self.detector.kill()
        await self.start_detector()

    async def restart_member(self, name: str) -> None:
        await self.members[name].kill()
        await self.start_member(name)

    def limit(self, kind: int, soft: int | None) -> None:
        """Bound a resource of the running detector; None: as before."""
        assert self.detector is not None
        _, hard = resource.prlimit(self.detector.pid, kind)
        resource.prlimit(self.detector.pid, kind, (hard if soft is None else soft, hard))

    def processes(self) -> list[int]:
        """All that are ours: the detector, the members, and who plays with them."""
        everyone = [*self.members.values(), *([] if self.detector is None else [self.detector])]
        return [os.getpid(), *(each.pid for each in everyone)]

    @property
    def detector_pid(self) -> int:
        assert self.detector is not None
        return self.detector.pid

    def open_descriptors(self) -> int:
        assert self.detector is not None
        return sum(1 for _ in Path(f"/proc/{self.detector.pid}/fd").iterdir())

    def resident_bytes(self) -> int:
        assert self.detector is not None
        pages = int(Path(f"/proc/{self.detector.pid}/statm").read_text().split()[1])
        return pages * resource.getpagesize()

    def vanish(self) -> None:
        """The data directory is gone."""
        gone = self.folder / f"gone-{os.urandom(4).hex()}"
        with contextlib.suppress(FileNotFoundError):
            self.data.rename(gone)
            shutil.rmtree(gone, ignore_errors=True)

    async def close(self) -> None:
        everyone = [*self.members.values(), *([] if self.detector is None else [self.detector])]
        for each in everyone:
            each.send(signal.SIGCONT)
            each.send(signal.SIGKILL)
        await asyncio.gather(*(each.process.wait() for each in everyone))
        for link in self.links.values():
            link.close()
