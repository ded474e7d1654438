"""How the commands speak with a running detector: where it is, one question, and its errors as one line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import click
import grpc

from detector.commands.run import CommandError
from stilltrue.security import Security, SecurityRefusedError
from stilltrue.v1 import detector_pb2_grpc

F = TypeVar("F", bound=Callable[..., Any])

DEFAULT_ADDRESS = "127.0.0.1:7600"
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


def detector_option(command: F) -> F:
    """``--detector HOST:PORT``, and how to speak with it: each also from ``STILLTRUE_...``."""
    for name in reversed(_SECURITY):
        command = click.option(
            "--" + name.replace("_", "-"), name, type=click.Path(exists=True, dir_okay=False), expose_value=False,
            envvar=f"STILLTRUE_{name.upper()}", show_envvar=True, callback=_remember, help=_SECURITY[name][1],
        )(command)  # fmt: skip
    return click.option(
        "--detector", "address", default=DEFAULT_ADDRESS, metavar="HOST:PORT", envvar="STILLTRUE_DETECTOR", show_default=True,
        show_envvar=True, callback=_checked, help="Where the detector listens.",
    )(command)  # fmt: skip


def timeout_option(command: F) -> F:
    """``--timeout-seconds``."""
    return click.option(
        "--timeout-seconds", type=click.FloatRange(min=0, min_open=True), default=30.0, show_default=True, show_envvar=True,
        help="How long to wait for the answer.",
    )(command)  # fmt: skip


def json_option(command: F) -> F:
    """``--json``."""
    return click.option("--json", "as_json", is_flag=True, show_envvar=True, help="Print JSON.")(command)


@contextmanager
def asking(address: str) -> Iterator[detector_pb2_grpc.DetectorServiceStub]:
    """A stub for the detector at ``address``; what goes wrong is a :class:`CommandError`."""
    options = [
        ("grpc.max_receive_message_length", -1),
        ("grpc.keepalive_time_ms", 10_000),
        ("grpc.keepalive_timeout_ms", 5_000),
        ("grpc.enable_http_proxy", 0),
    ]
    try:
        dialled = _security().channel(address, options)
    except SecurityRefusedError as error:
        raise CommandError(str(error)) from None
    with dialled as channel:
        try:
            yield detector_pb2_grpc.DetectorServiceStub(channel)  # type: ignore[no-untyped-call]
        except grpc.RpcError as error:
            raise failure(error, address) from None


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
