"""The gRPC port of the detector and of collectors: creates the server and binds it, with or without TLS."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from detector.ops.address import address_of, bare_host, why_not_bound
from detector.ops.logs import Log
from detector.service.grpc_api.security import Certificates, Files

_INT32_MAX = 2**31 - 1
CALLS_PER_CONNECTION = 100
"""Concurrent short calls and agents (behind a proxy) of one connection; a reset call counts until it is cleaned up."""
_PENDING_CALLS = 4000
"""Calls waiting for the event loop, as when a fleet connects at once. gRPC's default cancels at random beyond 1,000."""


class AddressInUseError(Exception):
    """The address is in use or not permitted; the message says what to change."""


def new_server(
    message_bytes_max: int,
    interceptors: Sequence[grpc.aio.ServerInterceptor] = (),
    *,
    calls_per_connection_max: int = CALLS_PER_CONNECTION,
) -> grpc.aio.Server:
    """Create a server that does not share its port and tolerates pings of idle agents.

    The bound on calls per connection keeps one that opens and resets calls endlessly from filling gRPC's queue.
    """
    options: list[tuple[str, Any]] = [
        ("grpc.so_reuseport", 0),
        ("grpc.max_receive_message_length", min(_INT32_MAX, message_bytes_max)),
        ("grpc.max_send_message_length", -1),
        ("grpc.max_concurrent_streams", calls_per_connection_max),
        ("grpc.server.max_pending_requests", _PENDING_CALLS),
        ("grpc.server.max_pending_requests_hard_limit", 2 * _PENDING_CALLS),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", 1000),
        ("grpc.keepalive_permit_without_calls", 1),
    ]
    return grpc.aio.server(interceptors=interceptors, options=options)


class ServedElsewhere(grpc.GenericRpcHandler):
    """Refuses the calls of a service that another process serves, and says which."""

    def __init__(self, service: str, text: str) -> None:
        self._prefix = f"/{service}/"
        self._text = text

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[Any, Any] | None:
        """Return the handler that refuses, for calls of the service."""
        if handler_call_details.method.startswith(self._prefix):
            return grpc.stream_stream_rpc_method_handler(self._refuse, None, None)
        return None

    async def _refuse(self, _: object, context: Any) -> None:
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, self._text)


def bind(server: grpc.aio.Server, host: str, port: int, files: Files | None, log: Log) -> int:
    """Bind the port, with TLS if there are ``files``, and return its number.

    Raises :class:`AddressInUseError` or :class:`~detector.service.grpc_api.roles.SecurityError`.
    """
    address = str(address_of(host, port))
    try:
        if files is not None:
            bound = server.add_secure_port(address, Certificates(files, log).credentials())
        else:
            bound = server.add_insecure_port(address)
    except RuntimeError:
        bound = 0
    if not bound:
        text = f"cannot listen on {address}: {_reason(host, port)}; choose another --host or --port (0: any free port)"
        raise AddressInUseError(text)
    return bound


def _reason(host: str, port: int) -> str:
    """Why gRPC cannot listen there, which it does not say: what the operating system answers when asked once more."""
    try:
        family, *_, address = socket.getaddrinfo(bare_host(host), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        with socket.socket(family) as probe:
            probe.bind(address)
            probe.listen()
    except OSError as error:
        return why_not_bound(error)
    return "is it in use?"


def files_of(certificate: Path | None, key: Path | None, client_ca: Path | None) -> Files | None:
    """The TLS files of a server; None without a certificate or key."""
    return None if certificate is None or key is None else Files(certificate=certificate, key=key, client_ca=client_ca)
