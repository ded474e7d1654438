"""How commands reach a running detector: its address and credentials, a stub, and errors as one line."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click
import grpc

from detector.commands.shared.run import CommandError
from detector.ops.address import AddressError, parse_address
from stilltrue.v1 import detector_pb2_grpc

F = TypeVar("F", bound=Callable[..., Any])

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
    ("--token-file", "token", "STILLTRUE_TOKEN_FILE", "File with the bearer token to send."),
)
_WORDS = {
    grpc.StatusCode.UNAVAILABLE: (
        "no detector at {address} ({details}); start one with 'stilltrue serve', or name it with --detector"
    ),
    grpc.StatusCode.DEADLINE_EXCEEDED: "the detector at {address} did not answer in time (--timeout-seconds)",
    grpc.StatusCode.UNIMPLEMENTED: "the server at {address} is not a detector ({details}); name the detector with --detector",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """The address of a detector and the credentials for it: PEM files, and a bearer token."""

    address: str
    ca: bytes | None
    certificate: bytes | None
    key: bytes | None
    token: str

    def channel(self) -> grpc.Channel:
        """Open a channel; with TLS when a CA or a certificate is given."""
        if self.ca is None and self.certificate is None:
            return grpc.insecure_channel(self.address, options=_OPTIONS)
        credentials = grpc.ssl_channel_credentials(self.ca, self.key, self.certificate)
        if self.token:
            credentials = grpc.composite_channel_credentials(credentials, grpc.access_token_call_credentials(self.token))
        return grpc.secure_channel(self.address, credentials, options=_OPTIONS)


def detector_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """``--detector`` and its credentials as one argument ``endpoint``; the environment variables are those of the agents."""

    @functools.wraps(command)
    def with_endpoint(
        *, address: str, ca: bytes | None, certificate: bytes | None, key: bytes | None, token: bytes | None, **rest: Any
    ) -> Any:
        if (certificate is None) is not (key is None):
            raise click.UsageError("--tls-cert-file and --tls-key-file must be given together")
        if token is not None and ca is None and certificate is None:
            raise click.UsageError("--token-file needs TLS (--tls-ca-file): without it the token would be sent in the clear")
        endpoint = Endpoint(address=address, ca=ca, certificate=certificate, key=key, token=(token or b"").decode().strip())
        return command(endpoint=endpoint, **rest)

    for flag, name, variable, text in reversed(_FILES):
        with_endpoint = click.option(
            flag, name, type=click.Path(exists=True, dir_okay=False, path_type=Path), envvar=variable, show_envvar=True,
            callback=_read, help=text,
        )(with_endpoint)  # fmt: skip
    return click.option(
        "--detector", "address", default=DEFAULT_ADDRESS, metavar="HOST:PORT", envvar="STILLTRUE_DETECTOR", show_default=True,
        show_envvar=True, callback=_checked, help="Address of the detector.",
    )(with_endpoint)  # fmt: skip


def _read(ctx: click.Context, param: click.Parameter, value: Path | None) -> bytes | None:  # noqa: ARG001
    try:
        return None if value is None else value.read_bytes()
    except OSError as error:
        raise click.BadParameter(f"{value}: {error.strerror}") from None


def timeout_option(command: F) -> F:
    """``--timeout-seconds``."""
    return click.option(
        "--timeout-seconds", type=click.FloatRange(min=0, min_open=True), default=30.0, show_default=True, show_envvar=True,
        help="How long to wait for an answer.",
    )(command)  # fmt: skip


def json_option(command: F) -> F:
    """``--json``."""
    return click.option("--json", "as_json", is_flag=True, envvar="STILLTRUE_JSON", show_envvar=True, help="Print JSON.")(
        command
    )


@contextmanager
def detector_stub(endpoint: Endpoint) -> Iterator[detector_pb2_grpc.DetectorServiceStub]:
    """A stub for the detector at ``endpoint``; errors of its calls become :class:`CommandError`."""
    with endpoint.channel() as channel:
        try:
            yield detector_pb2_grpc.DetectorServiceStub(channel)  # type: ignore[no-untyped-call]
        except grpc.RpcError as error:
            raise failure(error, endpoint.address) from None


def failure(error: grpc.RpcError, address: str) -> CommandError:
    """Describe a failed call in one line that says what to change."""
    code = error.code() if isinstance(error, grpc.Call) else None
    details = (error.details() or "") if isinstance(error, grpc.Call) else str(error)
    if code is grpc.StatusCode.UNAVAILABLE:
        details = details.rpartition("; ")[0] or details
        details = _reason(details)
    words = _WORDS.get(code, "{details}") if code is not None else "{details}"
    return CommandError(words.format(address=address, details=details))


def _reason(details: str) -> str:
    """The reason in gRPC's long error message."""
    for word in ("Connection refused", "Socket closed", "DNS resolution failed", "No route to host", "Connection reset"):
        if word.lower() in details.lower():
            return word.lower()
    return details[:120] or "not reachable"


def _checked(ctx: click.Context, param: click.Parameter, value: str) -> str:  # noqa: ARG001
    try:
        parse_address(value, port_min=1)
    except AddressError as error:
        raise click.BadParameter(f"{error}; for example {DEFAULT_ADDRESS}") from None
    return value
