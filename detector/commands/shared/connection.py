"""How the commands speak with a running detector: where it is, one question, and its errors as one line."""

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
from stilltrue.runtime.credentials import Security
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
    ("--tls-ca-file", "ca", "STILLTRUE_TLS_CA_FILE", "PEM certificates of those who sign the detector's; TLS is used then."),
    ("--tls-cert-file", "certificate", "STILLTRUE_TLS_CERT_FILE", "PEM certificate to show."),
    ("--tls-key-file", "key", "STILLTRUE_TLS_KEY_FILE", "PEM key of --tls-cert-file."),
    ("--token-file", "token", "STILLTRUE_TOKEN_FILE", "File with the bearer token to show."),
)
_WORDS = {
    grpc.StatusCode.UNAVAILABLE: (
        "no detector at {address} ({details}); start one with 'stilltrue serve', or name it with --detector"
    ),
    grpc.StatusCode.DEADLINE_EXCEEDED: "the detector at {address} did not answer in time; --timeout-seconds waits longer",
    grpc.StatusCode.UNIMPLEMENTED: "what listens at {address} is no detector ({details}); name it with --detector",
}


_SECURITY = {
    "tls_ca_file": ("ca", "PEM: whom to trust as the detector; TLS is spoken."),
    "tls_cert_file": ("certificate", "PEM: our certificate; TLS is spoken."),
    "tls_key_file": ("key", "PEM: the key of that certificate."),
    "token_file": ("token_file", "A file with our bearer token."),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where a detector is, and what it is shown: the files are PEM, the token is sent as a bearer token."""

    address: str
    ca: bytes | None
    certificate: bytes | None
    key: bytes | None
    token: str

    def channel(self) -> grpc.Channel:
        """A channel to it; TLS when a CA or a certificate is given."""
        if self.ca is None and self.certificate is None:
            return grpc.insecure_channel(self.address, options=_OPTIONS)
        credentials = grpc.ssl_channel_credentials(self.ca, self.key, self.certificate)
        if self.token:
            credentials = grpc.composite_channel_credentials(credentials, grpc.access_token_call_credentials(self.token))
        return grpc.secure_channel(self.address, credentials, options=_OPTIONS)


def detector_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """``--detector`` and what belongs to it, as one argument ``endpoint``. Their environment is that of the agents."""

    @functools.wraps(command)
    def with_endpoint(
        *, address: str, ca: bytes | None, certificate: bytes | None, key: bytes | None, token: bytes | None, **rest: Any
    ) -> Any:
        if (certificate is None) is not (key is None):
            raise click.UsageError("--tls-cert-file needs --tls-key-file, and that needs it")
        if token is not None and ca is None and certificate is None:
            raise click.UsageError("--token-file needs TLS (--tls-ca-file): a token is no secret without")
        endpoint = Endpoint(address=address, ca=ca, certificate=certificate, key=key, token=(token or b"").decode().strip())
        return command(endpoint=endpoint, **rest)

    for flag, name, variable, text in reversed(_FILES):
        with_endpoint = click.option(
            flag, name, type=click.Path(exists=True, dir_okay=False, path_type=Path), envvar=variable, show_envvar=True,
            callback=_read, help=text,
        )(with_endpoint)  # fmt: skip
    return click.option(
        "--detector", "address", default=DEFAULT_ADDRESS, metavar="HOST:PORT", envvar="STILLTRUE_DETECTOR", show_default=True,
        show_envvar=True, callback=_checked, help="Where the detector listens.",
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
        help="How long to wait for the answer.",
    )(command)  # fmt: skip


def json_option(command: F) -> F:
    """``--json``."""
    return click.option("--json", "as_json", is_flag=True, envvar="STILLTRUE_JSON", show_envvar=True, help="Print JSON.")(
        command
    )


@contextmanager
def detector_stub(endpoint: Endpoint) -> Iterator[detector_pb2_grpc.DetectorServiceStub]:
    """A stub for the detector at ``endpoint``; what goes wrong is a :class:`CommandError`."""
    with endpoint.channel() as channel:
        try:
            yield detector_pb2_grpc.DetectorServiceStub(channel)  # type: ignore[no-untyped-call]
        except grpc.RpcError as error:
            raise failure(error, endpoint.address) from None


def _remember(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    if value and param.name:
        ctx.meta[f"stilltrue.{param.name}"] = value


def _security() -> Security:
    """What the flags of the command say."""
    context = click.get_current_context(silent=True)
    given = {} if context is None else context.meta
    return Security(**{field: given.get(f"stilltrue.{name}", "") for name, (field, _) in _SECURITY.items()})


def failure(error: grpc.RpcError, address: str) -> CommandError:
    """What went wrong, in one line that says what to change."""
    code = error.code() if isinstance(error, grpc.Call) else None
    details = (error.details() or "") if isinstance(error, grpc.Call) else str(error)
    if code is grpc.StatusCode.UNAVAILABLE:
        details = details.rpartition("; ")[0] or details
        details = _reason(details)
    words = _WORDS.get(code, "{details}") if code is not None else "{details}"
    return CommandError(words.format(address=address, details=details))


def _reason(details: str) -> str:
    """gRPC's long story cut down to the reason."""
    for word in ("Connection refused", "Socket closed", "DNS resolution failed", "No route to host", "Connection reset"):
        if word.lower() in details.lower():
            return word.lower()
    return details[:120] or "not reachable"


def _checked(ctx: click.Context, param: click.Parameter, value: str) -> str:  # noqa: ARG001
    host, _, port = value.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise click.BadParameter(f"{value!r} is no HOST:PORT; write for example {DEFAULT_ADDRESS}")
    return value
