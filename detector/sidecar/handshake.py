"""TLS handshakes with callers: each ends in a connection, or is reported; asyncio's own servers drop a failed one silently."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import ContextVar
from typing import cast

from detector.sidecar.failures import RelayFailure, caller_left, caller_refused
from detector.sidecar.http2.connection import peer_host
from detector.sidecar.tls import Tls

_IN_PROGRESS: ContextVar[Handshake] = ContextVar("_IN_PROGRESS")
"""Of the task that does the handshake, and so of the callbacks that read from its connection."""


def hello_received(_: Tls) -> None:
    """A client has begun a handshake: it is no TCP probe."""
    if (handshake := _IN_PROGRESS.get(None)) is not None:
        handshake.begun = True


class Handshake(asyncio.Protocol):
    """A connection whose handshake is in progress; after it, the protocol that ``accept`` makes has the connection."""

    def __init__(self, tls: Tls, accept: Callable[[], asyncio.Protocol], warn: Callable[[RelayFailure], None]) -> None:
        """``warn`` is called if the handshake fails, but not if the peer leaves before it begins, as TCP probes do.

        The ``on_handshake`` of ``tls`` is :func:`hello_received`.
        """
        self._tls = tls
        self._accept = accept
        self._warn = warn
        self._early = bytearray()
        self._lost = False
        self.begun = False
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin the handshake."""
        self._task = asyncio.get_running_loop().create_task(self._shake(cast("asyncio.Transport", transport)))

    def data_received(self, data: bytes) -> None:
        """Keep what arrives with the end of the handshake."""
        self._early += data

    def connection_lost(self, _: Exception | None) -> None:
        """The peer left before the connection was handed over."""
        self._lost = True

    async def _shake(self, transport: asyncio.Transport) -> None:
        peer = peer_host(transport)
        _IN_PROGRESS.set(self)
        try:
            encrypted = await asyncio.get_running_loop().start_tls(transport, self, self._tls.context, server_side=True)
        except OSError as error:
            transport.abort()
            if not isinstance(error, ConnectionResetError):
                self._warn(caller_refused(peer, error))
            elif self.begun:
                self._warn(caller_left(peer))
            return
        if encrypted is None or self._lost:
            return
        protocol = self._accept()
        encrypted.set_protocol(protocol)
        protocol.connection_made(encrypted)
        if self._early:
            protocol.data_received(bytes(self._early))
