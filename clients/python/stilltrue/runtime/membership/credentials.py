"""A client's credentials for the detector: PEM files and a token, reread for each channel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
from grpc import _auth, _channel, _interceptor, _plugin_wrapping, experimental

from stilltrue.runtime.membership.secret_file import writable_by_all

try:
    import ssl
except ImportError:  # a Python built without OpenSSL; gRPC brings its own
    ssl = None  # type: ignore[assignment]

LOADED = (_auth, _channel, _interceptor, _plugin_wrapping, experimental)
"""Modules that gRPC would otherwise import on the agent's thread when it makes a channel. After a fork at that moment the child
would inherit a held import lock, and its first channel would hang."""


_FIRST_PRINTABLE, _LAST_PRINTABLE = 0x20, 0x7E
"""The bytes that may be in metadata, as a token is."""
_NOT_PEM = (None, "PEM_LIB", "NO_START_LINE", "NO_CERTIFICATE_OR_CRL_FOUND")
"""The reasons that ``ssl`` gives for such files (None: "PEM lib"). Its other reasons may be stricter than gRPC's."""


class SecurityRefusedError(ValueError):
    """Unusable credentials; the message is one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Security:
    """PEM files and a token file; empty: none. TLS is used if ``ca`` or ``certificate`` is set.

    ``ca``: CA bundle that verifies the detector (empty: the system's). ``certificate`` and ``key``: our own.
    ``token_file`` holds a bearer token, which without TLS is sent to loopback addresses only.
    """

    ca: str = ""
    certificate: str = ""
    key: str = ""
    token_file: str = ""

    def __post_init__(self) -> None:
        """Refuse a certificate without its key."""
        if bool(self.certificate) != bool(self.key):
            raise SecurityRefusedError("tls_cert_file and tls_key_file must be set together")

    @property
    def tls(self) -> bool:
        """Whether to use TLS."""
        return bool(self.ca or self.certificate)

    def loaded(self, address: str) -> tuple[grpc.ChannelCredentials | None, str]:
        """Read the files: the TLS credentials (None: no TLS) and the token. Raises :class:`SecurityRefusedError`."""
        token = _token(self.token_file) if self.token_file else ""
        if not self.tls:
            if token and not _is_loopback(address):
                raise SecurityRefusedError(f"token_file: a token is not sent to {address} without TLS (tls_ca_file)")
            return None, token
        ca, certificate = (_read(path) if path else None for path in (self.ca, self.certificate))
        key = _read(self.key, secret=True) if self.key else None
        self._check()
        return grpc.ssl_channel_credentials(ca, key, certificate), token

    def _check(self) -> None:
        """Refuse files for which gRPC only reports that it cannot connect: not PEM, or a key of another certificate."""
        if ssl is None:
            return
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        try:
            if self.ca:
                context.load_verify_locations(self.ca)
        except ssl.SSLError as error:
            if error.reason in _NOT_PEM:
                raise SecurityRefusedError(f"{self.ca}: not a CA certificate in PEM") from None
        try:
            if self.certificate:
                context.load_cert_chain(self.certificate, self.key, password=b"")
        except ssl.SSLError as error:
            if error.reason in _NOT_PEM:
                raise SecurityRefusedError(
                    f"{self.certificate} and {self.key}: not a certificate and its key, both in PEM"
                ) from None
            if error.reason == "KEY_VALUES_MISMATCH":
                raise SecurityRefusedError(f"{self.key} is not the key of {self.certificate}") from None
        except OSError as error:
            raise SecurityRefusedError(f"{self.certificate} and {self.key}: {error.strerror}") from None

    def channel(self, address: str, options: Sequence[tuple[str, Any]] = ()) -> grpc.Channel:
        """A channel to ``address`` with the files' current content. Raises :class:`SecurityRefusedError`."""
        credentials, token = self.loaded(address)
        channel = _channel_of_grpc(address, options, credentials)
        return grpc.intercept_channel(channel, _Bearer(token)) if token else channel


def _channel_of_grpc(address: str, options: Sequence[tuple[str, Any]], credentials: Any = None) -> grpc.Channel:
    """A channel of plain gRPC, whose public functions we or other instrumentations may have replaced."""
    own = None if credentials is None else credentials._credentials  # noqa: SLF001 - as grpc.secure_channel does
    channel: grpc.Channel = _channel.Channel(address, tuple(options), own, None)
    return channel


def _read(path: str, *, secret: bool = False) -> bytes:
    try:
        if secret and writable_by_all(path):
            raise SecurityRefusedError(f"{path}: writable by all users (chmod o-w)")
        return Path(path).read_bytes()
    except OSError as error:
        raise SecurityRefusedError(f"{path}: {error.strerror}") from None


def _token(path: str) -> str:
    text = _read(path, secret=True).strip()
    if not text:
        raise SecurityRefusedError(f"{path}: empty, and should hold a token")
    if not all(_FIRST_PRINTABLE <= byte <= _LAST_PRINTABLE for byte in text):
        raise SecurityRefusedError(f"{path}: a token is one line of printable ASCII characters")
    return text.decode("ascii")


def _is_loopback(address: str) -> bool:
    host = address.rpartition(":")[0].strip("[]")
    return host in {"localhost", "::1"} or host.startswith("127.")


class _Details(grpc.ClientCallDetails):
    """A call's details with more metadata."""

    def __init__(self, details: Any, metadata: Any) -> None:
        for name in ("method", "timeout", "credentials", "wait_for_ready", "compression"):
            setattr(self, name, getattr(details, name, None))
        self.metadata = metadata


class _Bearer(
    grpc.UnaryUnaryClientInterceptor,
    grpc.UnaryStreamClientInterceptor,
    grpc.StreamUnaryClientInterceptor,
    grpc.StreamStreamClientInterceptor,
):
    """Adds the token to every call."""

    def __init__(self, token: str) -> None:
        self._pair = ("authorization", f"Bearer {token}")

    def _details(self, details: Any) -> _Details:
        return _Details(details, (*(details.metadata or ()), self._pair))

    def intercept_unary_unary(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        return continuation(self._details(client_call_details), request)

    def intercept_unary_stream(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        return continuation(self._details(client_call_details), request)

    def intercept_stream_unary(self, continuation: Any, client_call_details: Any, request_iterator: Any) -> Any:
        return continuation(self._details(client_call_details), request_iterator)

    def intercept_stream_stream(self, continuation: Any, client_call_details: Any, request_iterator: Any) -> Any:
        return continuation(self._details(client_call_details), request_iterator)
