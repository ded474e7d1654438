"""Assembles, starts and stops the sidecar."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import signal
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

import stilltrue.agent
from detector.ops.address import Address, why_not_bound
from detector.ops.http import HttpServer
from detector.ops.logs import Log
from detector.sidecar.call_headers import Inbound
from detector.sidecar.failures import RelayFailure
from detector.sidecar.handshake import Handshake, hello_received
from detector.sidecar.http2.connection import Connection
from detector.sidecar.http2.relay import Relay, Route
from detector.sidecar.http2.routes import Dialler, InboundRoute, OutboundRoute, UpstreamChannels
from detector.sidecar.settings import SidecarSettings
from detector.sidecar.status import Status
from detector.sidecar.tls import Tls, TlsFiles, TlsRefusedError
from detector.sidecar.tracking.probe import PoolProbe, health_check
from detector.sidecar.tracking.program import Program

FOLLOW_SECONDS = 2.0
"""Interval between checks of the certificate files."""

WARN_SECONDS_MIN = 60.0
"""Interval between two lines about the same failure, since callers may retry in a tight loop."""

FAILURES_MAX = 100
"""The number of different failures that are logged within that time."""

BACKLOG = 1024


class CannotListenError(Exception):
    """An address cannot be listened on; the message is one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listening:
    """The addresses that the sidecar listens on."""

    inbound: Address
    outbound: Address | None
    admin: Address


class Sidecar:
    """One sidecar, from :meth:`start` to :meth:`stop`."""

    def __init__(self, settings: SidecarSettings, log: Log) -> None:
        """Raises :class:`~detector.sidecar.tls.TlsRefusedError`, :class:`~stilltrue.settings.SettingRefusedError`."""
        self.settings = settings
        self._log = log
        self._warned: dict[RelayFailure, float] = {}
        self.relays: dict[Relay, None] = {}
        self._servers: list[asyncio.Server] = []
        self._tls_in = _tls(settings.inbound_tls, server=True)
        self._tls_out = _tls(settings.upstream_tls if settings.upstreams.tls else None, server=False)
        self.agent = stilltrue.agent.Agent(**settings.agent, reactive=False)  # type: ignore[arg-type]  # each is its own setting
        self.program = Program(
            self.agent.live,
            later=lambda seconds, do: asyncio.get_running_loop().call_later(seconds, do),
            warn=lambda text: log.warning("assumption disproved", text=text),
            workers=settings.workers,
            never_awaited=settings.never_awaited,
            needs_all=settings.needs_all,
            call_seconds_max=settings.call_seconds_max,
        )
        self._probe = PoolProbe(self.program.pool, health_check(settings.program), time.monotonic)
        self.agent.answer_looks_with(
            lambda request: self.program.look(request, self._probe.doubt()), self.program.counts, kind="sidecar"
        )
        self._pages = HttpServer(Status(settings, self.agent, self.program, self.relays.__len__).answer, log=log)
        self._dialler = Dialler(self._warn)
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> Listening:
        """Listen, and connect to the detector. Raises :class:`CannotListenError`."""
        settings = self.settings
        inbound = Inbound(self.program, tells_party=settings.tells_party, scheme=b"http" if self._tls_in is not None else b"")
        out = UpstreamChannels(self.program, settings.upstreams, b"https" if self._tls_out is not None else b"")
        admin = await self._listen_admin()
        incoming = await self._listen(
            "--inbound", settings.inbound, lambda: InboundRoute(self._dialler, settings.program, inbound), self._tls_in
        )
        outgoing = None
        if settings.upstreams:
            outgoing = await self._listen(
                "--outbound", settings.outbound, lambda: OutboundRoute(self._dialler, out, self._tls_out), None
            )
            out.own_address = outgoing
        self.agent.start()
        self._tasks = [asyncio.create_task(self._follow_files()), asyncio.create_task(self._probe.run())]
        return Listening(inbound=incoming, outbound=outgoing, admin=admin)

    async def stop(self) -> None:
        """Stop accepting connections, let calls in progress finish, and leave the detector."""
        for task in self._tasks:
            task.cancel()
        for server in self._servers:
            server.close()
        for relay in list(self.relays):
            relay.drain()
        deadline = time.monotonic() + self.settings.drain_seconds_max
        while self.relays and time.monotonic() < deadline:
            for relay in list(self.relays):
                if not relay.streams:
                    relay.close()
            await asyncio.sleep(0.02)
        for relay in list(self.relays):
            relay.close()
        await self._pages.stop()
        self.agent.close()

    async def _listen_admin(self) -> Address:
        host = self.settings.admin.host
        try:
            return Address(host=host, port=await self._pages.start(host, self.settings.admin.port))
        except OSError as error:
            text = f"--admin-port: cannot listen on {self.settings.admin}: {why_not_bound(error)}"
            raise CannotListenError(text) from None

    async def _listen(self, flag: str, address: Address, new_route: Callable[[], Route], tls: Tls | None) -> Address:
        def accept() -> asyncio.Protocol:
            return self._accept(new_route())

        def shake() -> asyncio.Protocol:
            return accept() if tls is None else Handshake(tls, accept, self._warn)

        try:
            server = await asyncio.get_running_loop().create_server(shake, address.host, address.port, backlog=BACKLOG)
        except OSError as error:
            raise CannotListenError(f"{flag}: cannot listen on {address}: {why_not_bound(error)}") from None
        self._servers.append(server)
        return _bound(server)

    def _accept(self, route: Route) -> Connection:
        relay = Relay(route, fault=self.agent.live.report_failure, warn=self._warn, closed=self._closed)
        self.relays[relay] = None
        return relay.caller

    def _closed(self, relay: Relay) -> None:
        self.relays.pop(relay, None)

    def _warn(self, failure: RelayFailure) -> None:
        """Log a failure, unless it was logged a short time ago."""
        now = time.monotonic()
        self._warned = {one: at for one, at in self._warned.items() if now - at < WARN_SECONDS_MIN}
        if failure not in self._warned and len(self._warned) < FAILURES_MAX:
            self._warned[failure] = now
            self._log.warning("relay failed", **dataclasses.asdict(failure))

    async def _follow_files(self) -> None:
        while True:
            await asyncio.sleep(FOLLOW_SECONDS)
            for tls in (self._tls_in, self._tls_out):
                try:
                    if tls is not None and tls.reload_if_changed():
                        self._log.info("certificates reloaded")
                except TlsRefusedError as error:
                    self._log.warning("certificates not reloaded, the previous ones stay", text=str(error))


@contextlib.asynccontextmanager
async def running(settings: SidecarSettings) -> AsyncIterator[tuple[Sidecar, Listening]]:
    """Run a sidecar during the block."""
    sidecar = Sidecar(settings, Log("stilltrue"))
    try:
        yield sidecar, await sidecar.start()
    finally:
        await sidecar.stop()


async def serve(settings: SidecarSettings, started: Callable[[Listening], None]) -> None:
    """Run until SIGTERM or SIGINT; call ``started`` with the addresses."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    async with running(settings) as (_, listening):
        started(listening)
        await stop.wait()


def _tls(files: TlsFiles | None, *, server: bool) -> Tls | None:
    return None if files is None else Tls(files, server=server, on_handshake=hello_received)


def _bound(server: asyncio.Server) -> Address:
    host, port = server.sockets[0].getsockname()[:2]
    return Address(host=host, port=port)
