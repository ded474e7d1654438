"""A detector as a process of its own, and commands run against it; the processes it watches are played as in tests/service."""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest

from detector.cli import cli
from detector.commands.shared.run import run_command
from tests.service import conftest as fakes


class Ended(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str


def environment(**values: str) -> dict[str, str]:
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("STILLTRUE_") or name == "STILLTRUE_REQUIRE_SHARED"
    }
    return kept | values


async def start(*arguments: str, **values: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "detector.cli", *arguments, env=environment(**values),
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip


async def run(*arguments: str, **values: str) -> Ended:
    """Run ``stilltrue ARGUMENTS`` as a process, to its end."""
    command = await start(*arguments, **values)
    async with asyncio.timeout(60):
        out, err = await command.communicate()
    assert command.returncode is not None
    return Ended(command.returncode, out.decode(), err.decode())


async def run_here(*arguments: str) -> Ended:
    """Run ``stilltrue ARGUMENTS`` on a thread of this process, to its end; one at a time."""

    def work() -> Ended:
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                code = run_command(cli, arguments)
            except SystemExit as end:
                code = int(end.code or 0)
        return Ended(code, out.getvalue(), err.getvalue())

    async with asyncio.timeout(60):
        return await asyncio.to_thread(work)


class Served:
    """A detector that runs: where it listens, and how to ask it."""

    def __init__(self, process: asyncio.subprocess.Process, line: str) -> None:
        self.process = process
        self.line = line
        said = dict(word.partition("=")[::2] for word in line.split()[1:])
        self.address, self.pages, self.metrics = said["grpc"], said["pages"], said["metrics"]

    async def run(self, *arguments: str) -> Ended:
        return await run_here(*arguments, "--detector", self.address)

    async def end(self, number: int = signal.SIGTERM) -> str:
        """End it: what it logged."""
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(number)
        async with asyncio.timeout(30):
            _, err = await self.process.communicate()
        return err.decode()


@contextlib.asynccontextmanager
async def serving(data: Path, *arguments: str, **values: str) -> AsyncIterator[Served]:
    process = await start("serve", "--port", "0", "--http-port", "0", "--data", str(data), *arguments, **values)
    try:
        assert process.stdout is not None
        async with asyncio.timeout(60):
            line = (await process.stdout.readline()).decode()
        yield Served(process, line)
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


@pytest.fixture(scope="session")
def played() -> ModuleType:
    """``FakeProcess`` and ``Deadlock``."""
    return fakes


@pytest.fixture
def serve() -> Any:
    return serving


@pytest.fixture
def command() -> Any:
    return run


@pytest.fixture
def here() -> Any:
    return run_here


@pytest.fixture
def begin() -> Any:
    return start
