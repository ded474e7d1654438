"""Warm standby: of several detectors with the same data directory or Kubernetes Lease, one serves and the others wait.

The Lease elects one across machines; the lock on the directory always keeps two from writing to it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
from collections.abc import AsyncIterator, Coroutine
from http import HTTPStatus
from typing import Any

from aiohttp import web

from detector.ops.address import bare_host
from detector.ops.http import Answer, HttpServer
from detector.ops.logs import Log
from detector.service.kubernetes.api import ApiServer
from detector.service.kubernetes.lease import Lease, leasing
from detector.service.settings import Settings
from detector.service.storage.sqlite import wait_until_free

RETRY_SECONDS = 1.0
"""How often a standby tries to lock a directory on a failing disk."""


class Leadership:
    """Decides when this detector may serve."""

    def __init__(self, settings: Settings, log: Log, lease: Lease | None) -> None:
        """``lease``: None if the directory's lock alone decides."""
        self.waits = settings.standby or lease is not None
        """Whether it waits for its turn; otherwise it fails if the directory is in use."""
        self._settings = settings
        self._log = log
        self._lease = lease

    async def acquired(self, stop: asyncio.Event) -> None:
        """Wait until this detector may serve, or for ``stop``. Meanwhile health checks get: alive, but not ready."""
        if self.waits:
            async with _probes(self._settings, self._log):
                self._log.info("standing by", data=self._settings.data, lease="" if self._lease is None else self._lease.name)
                await first_of(stop.wait(), self._is_free())

    async def lost(self) -> None:
        """Wait until the Lease is lost."""
        if self._lease is None:
            await asyncio.Event().wait()
        else:
            await self._lease.lost()
            self._log.warning("lease lost", lease=self._lease.name)

    async def _is_free(self) -> None:
        """Wait until the Lease is ours and the directory is free."""
        while True:
            if self._lease is not None:
                await self._lease.held()
            await first_of(_directory_is_free(self._settings, self._log), self.lost())
            if self._lease is None or self._lease.holds:
                return


@contextlib.asynccontextmanager
async def leadership_of(settings: Settings, log: Log) -> AsyncIterator[Leadership]:
    """The leadership that ``settings`` configure. Raises :class:`~detector.service.kubernetes.api.NoClusterError`."""
    if not settings.standby_lease:
        yield Leadership(settings, log, None)
        return
    server = ApiServer.of_cluster(os.environ, wanted="--standby-lease", instead="; on one machine, use --standby")
    async with leasing(server, settings.standby_lease, settings.standby_lease_seconds, log) as lease:
        yield Leadership(settings, log, lease)


async def first_of(*waits: Coroutine[Any, Any, Any]) -> None:
    """Wait until one of ``waits`` completes, and cancel the others."""
    tasks = [asyncio.create_task(wait) for wait in waits]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()


async def _directory_is_free(settings: Settings, log: Log) -> None:
    loop, free = asyncio.get_running_loop(), asyncio.Event()

    def wait() -> None:
        problem = ""
        while True:
            try:
                wait_until_free(settings.data)
                break
            except OSError as error:
                if str(error) != problem:
                    problem = str(error)
                    log.failure("directory cannot be locked", data=settings.data, reason=problem, consequence="tried again")
                time.sleep(RETRY_SECONDS)
        with contextlib.suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(free.set)

    threading.Thread(target=wait, name="stilltrue-standby", daemon=True).start()
    await free.wait()


@contextlib.asynccontextmanager
async def _probes(settings: Settings, log: Log) -> AsyncIterator[None]:
    async def answer(request: web.BaseRequest) -> Answer:
        match request.path:
            case "/healthz":
                return Answer(body="ok: standing by\n")
            case "/readyz":
                return Answer(status=HTTPStatus.SERVICE_UNAVAILABLE, body="standing by\n")
        text = f"standing by: another detector uses {settings.data}; its web UI has the answers until this one takes over\n"
        return Answer(status=HTTPStatus.SERVICE_UNAVAILABLE, body=text)

    probes = HttpServer(answer, log=log, hosts=settings.http_names)
    with contextlib.suppress(OSError):  # the other detector on this machine may use the port
        await probes.start(bare_host(settings.http_host), settings.http_port)
    try:
        yield
    finally:
        await probes.stop()
