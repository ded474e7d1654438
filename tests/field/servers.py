"""The real servers that programs of the catalogue use: Debian's PostgreSQL and Redis, on loopback, each on a free port.

Each is started when it is first needed. Without the packages a test is skipped with the reason; in CI that is a failure.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

from tests.free_ports import free_port

START_SECONDS_MAX = 60.0
_POSTGRES_OF_DEBIAN = Path("/usr/lib/postgresql")
_DATABASES_OF_REDIS = 512


class Servers:
    """The servers of one run of tests; a context manager that stops them."""

    def __init__(self, folder: Path) -> None:
        """``folder`` is for their data and logs."""
        self._folder = folder
        self._processes: list[subprocess.Popen[bytes]] = []
        self._postgres = ""
        self._redis = ""
        self._databases = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for process in self._processes:
            os.killpg(process.pid, signal.SIGTERM)
        for process in self._processes:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:  # a smart shutdown of PostgreSQL waits for its clients
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def environment(self, needed: tuple[str, ...], name: str) -> dict[str, str]:
        """What a program needs to know of the servers it uses; each run has empty databases of its own."""
        self._databases += 1
        found = {}
        if "postgres" in needed:
            found["FIELD_POSTGRES"] = self._postgres_database(f"{name}_{self._databases}")
        if "redis" in needed:
            self._redis = self._redis or self._start_redis()
            found["FIELD_REDIS"] = f"{self._redis}/{self._databases}"
        return found

    def _postgres_database(self, name: str) -> str:
        self._postgres = self._postgres or self._start_postgres()
        import psycopg  # noqa: PLC0415 - only what needs a server waits for its library

        with psycopg.connect(f"{self._postgres}/postgres", autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{name.replace("-", "_")}"')
        return f"{self._postgres}/{name.replace('-', '_')}"

    def _start_postgres(self) -> str:
        import psycopg  # noqa: PLC0415 - likewise

        versions = sorted(_POSTGRES_OF_DEBIAN.glob("*/bin/postgres"), key=lambda path: int(path.parents[1].name))
        if not versions:
            _missing("PostgreSQL", "apt-get install postgresql")
        programs, data, port = versions[-1].parent, self._folder / "postgres", free_port()
        user = _as_postgres(self._folder)
        data.mkdir()
        if user:
            shutil.chown(data, "postgres")
        initdb = [*user, str(programs / "initdb"), "-D", str(data), "-U", "field", "-A", "trust", "--no-sync"]
        subprocess.run(initdb, check=True, stdout=subprocess.DEVNULL, cwd="/")
        flags = ["-D", str(data), "-h", "127.0.0.1", "-p", str(port), "-k", "", "-c", "fsync=off", "-c", "max_connections=200"]
        self._start("postgres.log", [*user, str(programs / "postgres"), *flags])
        address = f"postgresql://field@127.0.0.1:{port}"
        _until_it_answers("PostgreSQL", lambda: psycopg.connect(f"{address}/postgres", connect_timeout=5).close())
        return address

    def _start_redis(self) -> str:
        import redis  # noqa: PLC0415 - likewise

        program = shutil.which("redis-server")
        if program is None:
            _missing("Redis", "apt-get install redis-server")
        port = free_port()
        flags = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(self._folder)]
        self._start("redis.log", [str(program), *flags, "--databases", str(_DATABASES_OF_REDIS)])
        _until_it_answers("Redis", lambda: redis.Redis(port=port).ping())
        return f"redis://127.0.0.1:{port}"

    def _start(self, log: str, command: list[str]) -> None:
        """Start a server under a shell, in a session of its own.

        It must not be a sibling of the programs: an agent cannot tell whether a sibling of another user has its sockets.
        """
        shell = ["sh", "-c", 'trap : TERM; "$@"; exit', "sh", *command]
        with (self._folder / log).open("wb") as output:
            process = subprocess.Popen(shell, stdout=output, stderr=output, cwd="/", start_new_session=True)
        self._processes.append(process)


def _as_postgres(folder: Path) -> list[str]:
    """How to run a program as the user ``postgres``: PostgreSQL refuses to run as root."""
    if os.geteuid():
        return []
    for path in (folder, *folder.parents):  # pytest's folders are for their owner alone
        if path.owner() == "root" and path != Path("/") and not path.stat().st_mode & 0o001:
            path.chmod(path.stat().st_mode | 0o011)
    return ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]


def _missing(server: str, how: str) -> None:
    """A failure in CI, elsewhere a skip that says how to get it."""
    text = f"{server} is not installed: {how}"
    if os.environ.get("CI") == "true":
        pytest.fail(text)
    pytest.skip(text)


def _until_it_answers(server: str, ask: Callable[[], object]) -> None:
    import psycopg  # noqa: PLC0415 - likewise
    import redis  # noqa: PLC0415

    end = time.monotonic() + START_SECONDS_MAX
    while True:
        try:
            ask()
        except (psycopg.Error, redis.ConnectionError) as error:
            if time.monotonic() > end:
                raise AssertionError(f"{server} did not start within {START_SECONDS_MAX:g} s") from error
            time.sleep(0.05)
        else:
            return
