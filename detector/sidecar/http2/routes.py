"""The two routes of a relay: inbound to the program, and outbound to the upstream that the first request names."""

from __future__ import annotations

import asyncio
import random
import ssl
from collections.abc import Callable

from detector.ops.address import Address, AddressError
from detector.sidecar.call_headers import Inbound, Outbound
from detector.sidecar.failures import INBOUND, OUTBOUND, RelayFailure, unreachable
from detector.sidecar.http2.hpack import Headers
from detector.sidecar.http2.relay import Relay, Route
from detector.sidecar.routing import Upstreams
from detector.sidecar.tls import Tls
from detector.sidecar.tracking.observer import CallObserver
from detector.sidecar.tracking.program import Program
from stilltrue.protocol.books.ledger import ChannelRecord

CONNECT_SECONDS_MAX = 20.0
CHANNELS_MAX = 10_000


class Dialler:
    """Connects relays to servers."""

    def __init__(self, warn: Callable[[RelayFailure], None]) -> None:
        self._warn = warn
        self._tasks: set[asyncio.Task[None]] = set()

    def dial(self, relay: Relay, address: Address, route: Route, failed: Callable[[str], None]) -> None:
        """Connect the relay to the server; do not read from the caller until then. ``failed`` is called with the reason."""
        relay.caller.hold(True)
        task = asyncio.get_running_loop().create_task(self._dial(relay, address, route, failed))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _dial(self, relay: Relay, address: Address, route: Route, failed: Callable[[str], None]) -> None:
        try:
            async with asyncio.timeout(CONNECT_SECONDS_MAX):
                await _connect(relay, address, None if route.tls is None else route.tls.context)
        except (OSError, TimeoutError) as error:
            failure = unreachable(route.direction, str(address), error)
            self._warn(failure)
            failed(failure.text)
        finally:
            relay.caller.hold(False)


async def _connect(relay: Relay, address: Address, context: ssl.SSLContext | None) -> None:
    """Connect to one of the host's addresses, in random order to spread connections."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(address.host, address.port, type=1)
    places = list(dict.fromkeys(place[4][:2] for place in found))
    random.shuffle(places)
    for index, (host, port) in enumerate(places, 1):
        try:
            await loop.create_connection(
                lambda: relay.server, host, port, ssl=context, server_hostname=address.host if context is not None else None
            )
        except OSError:
            if index == len(places):
                raise
        else:
            return


class InboundRoute:
    """The route to the program: a connection to it for each connection of a caller."""

    direction = INBOUND
    tls: Tls | None = None

    def __init__(self, dialler: Dialler, address: Address, observer: Inbound) -> None:
        """``address`` is the program's."""
        self._dialler = dialler
        self.address = address
        self._observer = observer

    def begin(self, relay: Relay) -> None:
        """Connect at once; if the program is unreachable, abort the caller's connection."""
        self._dialler.dial(relay, self.address, self, lambda _: relay.caller.abort())

    def choose(self, relay: Relay, headers: Headers) -> CallObserver | str:  # noqa: ARG002 - there is one destination
        """Return the program's observer."""
        return self._observer


class UpstreamChannels:
    """The channel records of the upstreams, shared by all connections to them."""

    def __init__(self, program: Program, upstreams: Upstreams, scheme: bytes) -> None:
        self._program = program
        self._scheme = scheme
        self._observers: dict[Address, Outbound] = {}
        self.upstreams = upstreams
        self.own_address: Address | None = None
        """Our own outbound address, to which no call is sent again."""

    def observer(self, address: Address) -> Outbound:
        """Return the observer of calls to this upstream."""
        observer = self._observers.get(address)
        if observer is None:
            if len(self._observers) >= CHANNELS_MAX:
                self._observers.clear()
            observer = self._observers[address] = Outbound(self._program, ChannelRecord(str(address)), scheme=self._scheme)
        return observer


class OutboundRoute:
    """The route to an upstream, which is chosen by the first request of a connection."""

    direction = OUTBOUND

    def __init__(self, dialler: Dialler, channels: UpstreamChannels, tls: Tls | None) -> None:
        """``tls`` is for the connections to upstreams; None: plaintext."""
        self._dialler = dialler
        self._channels = channels
        self.tls = tls
        self.address: Address | None = None

    def begin(self, relay: Relay) -> None:
        """Connect at once if there is only one upstream; otherwise wait for the first request."""
        only = self._channels.upstreams.only
        if only is None:
            relay.greet()
            return
        self.address = only
        self._dialler.dial(relay, only, self, lambda _: relay.caller.abort())

    def choose(self, relay: Relay, headers: Headers) -> CallObserver | str:
        """Return the upstream's observer."""
        authority = _authority(headers)
        if self.address is None or self._channels.upstreams.only is None:
            try:
                address = self._channels.upstreams.find(authority, self._channels.own_address)
            except AddressError as refusal:
                return f"stilltrue sidecar: {refusal}"
            if self.address is None:
                self.address = address
                self._dialler.dial(relay, address, self, lambda why: relay.refuse_all(f"stilltrue sidecar: {why}"))
            elif address != self.address:
                return (
                    f"stilltrue sidecar: this connection leads to {self.address}; "
                    f"open another grpc.Channel for the authority {authority!r}"
                )
        return self._channels.observer(self.address)


def _authority(headers: Headers) -> str:
    for name, value in headers:
        if name == b":authority":
            return value.decode("utf-8", "replace")
    return ""
