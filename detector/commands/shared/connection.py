"""Connects commands to a running detector: options for address and credentials, a stub, one-line errors."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from socket import create_connection
from typing import Any, TypeVar

import click
import grpc

from detector.commands.options.finite_range import FiniteRange
from detector.commands.shared.run import CommandError
from detector.ops.address import AddressError, parse_address
from stilltrue.runtime.membership.credentials import Security, SecurityRefusedError
from stilltrue.v1 import detector_pb2_grpc

F = TypeVar("F", bound=Callable[..., Any])

_DIAL_SECONDS_MAX = 1.0
DEFAULT_ADDRESS = "127.0.0.1:7600"
_OPTIONS = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.enable_http_proxy", 0),
)
_FILES = (
    ("--tls-ca-file", "ca", "STILLTRUE_TLS_CA_FILE", "PEM CA bundle to verify the detector with; enables TLS."),
    ("--tls-cert-file", "certificate", "STILLTRUE_TLS_CERT_FILE", "PEM client certificate, for mTLS."),
    ("--tls-key-file", "key", "STILLTRUE_TLS_KEY_FILE", "PEM private key of --tls-cert-file."),
    (
        "--token-file",
        "token_file",
        "STILLTRUE_TOKEN_FILE",
        "File with the bearer token to send; needs TLS beyond loopback.",
    ),
)
_MESSAGES = {
    grpc.StatusCode.UNAVAILABLE: (
        "no detector at {address} ({details}); start one with 'stilltrue serve', or name it with --detector"
    ),
    grpc.StatusCode.DEADLINE_EXCEEDED: "the detector at {address} did not answer in time (--timeout-seconds)",
    grpc.StatusCode.UNIMPLEMENTED: (
        "the server at {address} is not a detector, or is too old for this command ({details}); name the detector with "
        "--detector, or update it"
    ),
}

_REASONS = {
    "connection refused": r"connection refused",
    "the host name cannot be resolved": r"dns resolution failed|errors resolving|lookup (error|failed)",
    "no route to host": r"no route to host",
    "connection reset": r"connection reset",
    "socket closed": r"socket closed",
    "it shut down": r"cancelling all calls",
}
"""By the reason that a command prints: how gRPC's error message, which differs between its versions, gives it."""
_HANDSHAKE_FAILED = (
    "something listens at {address} but does not answer as a detector: if it uses TLS, give --tls-ca-file (and --tls-cert-file "
    "and --tls-key-file, if it asks for certificates), and a host name that its certificate is for; if this is the web UI's "
    "port, give the gRPC port (7600 by default)"
)
"""gRPC reports a failed handshake exactly as it reports a port where nothing listens."""

_HANDSHAKES = (
    (
        "certificate_verify_failed",
        "the certificate of {address} is not accepted: give the CA that signed it as --tls-ca-file",
    ),
    (
        "hostname verification|is not in peer certificate",
        "the certificate of {address} is for another host name: give --detector one of its names",
    ),
    (
        "wrong_version_number",
        "{address} does not speak TLS: leave out --tls-ca-file and --tls-cert-file, or give the gRPC port (7600 by default)",
    ),
)
"""What to change, by the reason for which a handshake failed, where gRPC gives one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """The address of a detector and the credentials for it."""

    address: str
    security: Security

    def channel(self) -> grpc.Channel:
        """Open a channel. Raises :class:`CommandError` for unusable credentials."""
        try:
            return self.security.channel(_first_reachable(self.address), _OPTIONS)
        except SecurityRefusedError as error:
            raise CommandError(str(error)) from None


def _first_reachable(addresses: str) -> str:
    """Return the first address that accepts connections, of a detector and its standbys; else the first."""
    first, *others = addresses.split(",")
    return next((address for address in (first, *others) if _accepts(address)), first) if others else first


def _accepts(address: str) -> bool:
    """Whether ``address`` accepts connections."""
    parsed = parse_address(address)
    with suppress(OSError), create_connection((parsed.host, parsed.port), _DIAL_SECONDS_MAX):
        return True
    return False


def detector_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """``--detector`` and its credentials, passed as ``endpoint``."""

    @functools.wraps(command)
    def with_endpoint(*, address: str, security: Security, **rest: Any) -> Any:
        return command(endpoint=Endpoint(address=address, security=security), **rest)

    return click.option(
        "--detector", "address", default=DEFAULT_ADDRESS, metavar="HOST:PORT", envvar="STILLTRUE_DETECTOR", show_default=True,
        show_envvar=True, callback=_checked, help="Address of the detector.",
    )(security_options(with_endpoint))  # fmt: skip


def security_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The credentials for a detector, passed as ``security``; their environment variables are those of the agent."""

    @functools.wraps(command)
    def with_security(*, ca: str | None, certificate: str | None, key: str | None, token_file: str | None, **rest: Any) -> Any:
        if bool(certificate) != bool(key):
            raise click.UsageError("--tls-cert-file and --tls-key-file must be given together")
        security = Security(ca=ca or "", certificate=certificate or "", key=key or "", token_file=token_file or "")
        return command(security=security, **rest)

    for flag, name, variable, text in reversed(_FILES):
        with_security = click.option(
            flag, name, type=click.Path(exists=True, dir_okay=False), envvar=variable, show_envvar=True, help=text
        )(with_security)
    return with_security


def timeout_option(command: F) -> F:
    """``--timeout-seconds``."""
    return click.option(
        "--timeout-seconds", type=FiniteRange(min=0, min_open=True), default=30.0, show_default=True, show_envvar=True,
        help="How long to wait for an answer.",
    )(command)  # fmt: skip


@contextmanager
def detector_stub(endpoint: Endpoint) -> Iterator[detector_pb2_grpc.DetectorServiceStub]:
    """A stub for the detector at ``endpoint``; errors of its calls become :class:`CommandError`.

    After Ctrl-C the channel is not closed: closing waits for open calls, and a call that was interrupted while it
    started may never end.
    """
    channel = endpoint.channel()
    try:
        yield detector_pb2_grpc.DetectorServiceStub(channel)  # type: ignore[no-untyped-call]
    except grpc.RpcError as error:
        channel.close()
        raise failure(error, endpoint.address) from None
    except KeyboardInterrupt:
        raise
    except BaseException:
        channel.close()
        raise
    channel.close()


def failure(error: grpc.RpcError, address: str) -> CommandError:
    """Return a one-line error for a failed call, saying what to change."""
    code = error.code() if isinstance(error, grpc.Call) else None
    details = (error.details() or "") if isinstance(error, grpc.Call) else str(error)
    if code is grpc.StatusCode.UNAVAILABLE:
        if details.startswith("failed to connect") and listens(address):
            return handshake_failure(address, details)
        details = _reason(details)
    message = _MESSAGES.get(code, "{details}") if code is not None else "{details}"
    return CommandError(message.format(address=address, details=details))


def listens(addresses: str) -> bool:
    """Whether any of the comma-separated ``addresses`` accepts connections."""
    return any(map(_accepts, addresses.split(",")))


def handshake_failure(address: str, details: str = "") -> CommandError:
    """Return the error for a failed handshake at an address that accepts connections."""
    known = (text for pattern, text in _HANDSHAKES if re.search(pattern, details, re.IGNORECASE))
    return CommandError(next(known, _HANDSHAKE_FAILED).format(address=address))


def unavailable_reason(error: grpc.RpcError) -> str:
    """Return in few words why a detector cannot be reached any more."""
    return _reason((error.details() or "") if isinstance(error, grpc.Call) else str(error))


def _reason(details: str) -> str:
    """Extract the reason from gRPC's long error message."""
    for reason, pattern in _REASONS.items():
        if re.search(pattern, details, re.IGNORECASE):
            return reason
    return (details.rpartition("; ")[0] or details)[:120] or "not reachable"


def _checked(ctx: click.Context, param: click.Parameter, value: str) -> str:  # noqa: ARG001
    try:
        for address in value.split(","):
            parse_address(address, port_min=1)
    except AddressError as error:
        hint = "" if ": write " in str(error) else f"; for example {DEFAULT_ADDRESS}"
        raise click.BadParameter(f"{error}{hint}") from None
    return value
