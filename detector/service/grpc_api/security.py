"""Access control: TLS and mTLS with certificates that are reloaded on change, and roles."""

from __future__ import annotations

import inspect
import ssl
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from detector.ops.address import is_loopback
from detector.ops.files.watched_files import Signature, WatchedFiles
from detector.ops.logs import Log
from detector.service.grpc_api.access_log import AccessLog
from detector.service.grpc_api.first_messages import PATIENCE_SECONDS, FirstMessages
from detector.service.grpc_api.roles import Role, Roles, SecurityError, describe_client, roles_for
from stilltrue.runtime.membership.secret_file import writable_by_all

REQUEST_BYTES_MAX = 256 * 1024
REQUEST_SECONDS_MAX = 5.0
REQUESTS_READ_MAX = 8
"""Requests read at once; each may be as large as a report."""
_BEARER = "bearer "
_LOGGED = "/stilltrue.v1.DetectorService/"
"""The methods in the access log: those for clients, not the streams of agents."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Files:
    """A server's PEM files: certificate chain, key, and the CA of client certificates (None: clients need none)."""

    certificate: Path
    key: Path
    client_ca: Path | None = None


# -- certificates ------------------------------------------------------------------------------------------------------


class Certificates:
    """Server credentials, reloaded on change: each handshake uses the newest matching certificate and key."""

    def __init__(self, files: Files, log: Log) -> None:
        """Raises :class:`SecurityError`."""
        self._files = files
        self._log = log
        self._lock = threading.Lock()
        self._watched = WatchedFiles(self._paths())
        self._watched.take(self._look() or ())
        self._first = self._read()

    def credentials(self) -> grpc.ServerCredentials:
        """For :meth:`grpc.aio.Server.add_secure_port`. With a ``client_ca``, clients must present a certificate."""
        newer: Any = self._newer  # the stubs do not know that None means no change
        return grpc.dynamic_ssl_server_credentials(
            self._first, newer, require_client_authentication=self._files.client_ca is not None
        )

    def _newer(self) -> grpc.ServerCertificateConfiguration | None:
        """Return a new configuration, or None if nothing has changed; gRPC calls it at each handshake, on its thread."""
        with self._lock:
            try:
                changed = self._look()
                if changed is None:
                    return None
                read = self._read()
            except SecurityError as error:
                self._log.warning("certificates not reloaded; the previous ones stay in use", text=str(error))
                return None
            self._watched.take(changed)
        self._log.info("certificates reloaded", certificate=self._files.certificate)
        return read

    def _look(self) -> Signature | None:
        try:
            return self._watched.changed()
        except OSError as error:
            raise SecurityError(f"{error.filename}: {error.strerror}") from None

    def _paths(self) -> list[Path]:
        files = self._files
        return [path for path in (files.certificate, files.key, files.client_ca) if path is not None]

    def _read(self) -> grpc.ServerCertificateConfiguration:
        files = self._files
        texts = {path: _pem(path, secret=path == files.key) for path in self._paths()}
        check_pair(files.certificate, files.key)
        ca = None if files.client_ca is None else texts[files.client_ca]
        return grpc.ssl_server_certificate_configuration([(texts[files.key], texts[files.certificate])], ca)


def _pem(path: Path, *, secret: bool = False) -> bytes:
    try:
        if secret and writable_by_all(path):
            raise SecurityError(f"{path}: writable by all users (chmod o-w)")
        text = path.read_bytes()
    except OSError as error:
        raise SecurityError(f"{path}: {error.strerror}") from None
    if b"-----BEGIN " not in text:
        raise SecurityError(f"{path}: not a PEM file")
    return text


def check_pair(certificate: Path, key: Path) -> None:
    """Check that the key belongs to the certificate; it may not in the middle of a rotation. Raises :class:`SecurityError`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(certificate, key)
    except (ssl.SSLError, OSError) as error:
        if getattr(error, "reason", None) == "KEY_VALUES_MISMATCH":
            raise SecurityError(f"{key} is not the key of {certificate}") from None
        raise SecurityError(f"{certificate} and {key}: {getattr(error, 'reason', None) or error}") from None


# -- the guard ---------------------------------------------------------------------------------------------------------


class Guard(grpc.aio.ServerInterceptor):
    """Refuses clients without the required role before their request is read, and bounds requests.

    UNAUTHENTICATED if the client is unknown, else PERMISSION_DENIED. A response stream ends when the role is revoked.
    """

    def __init__(
        self, roles: Roles | None, refused: Callable[[str], None], log: Log, access_log: AccessLog | None = None
    ) -> None:
        """``roles`` None: every client may call everything. ``refused`` counts refused agents by reason."""
        self._access_log = access_log
        self._roles = roles
        self._refused = refused
        self._log = log
        self._first_messages = FirstMessages(REQUESTS_READ_MAX)

    def close(self) -> None:
        """Flush the access log."""
        if self._access_log is not None:
            self._access_log.close()

    async def intercept_service(self, continuation: Callable[[Any], Awaitable[Any]], handler_call_details: Any) -> Any:
        """See :meth:`grpc.aio.ServerInterceptor.intercept_service`."""
        handler = await continuation(handler_call_details)
        if handler is None:
            return handler
        method = str(handler_call_details.method)
        needed = frozenset() if self._roles is None else roles_for(method)

        async def check(context: Any) -> None:
            if self._roles is not None and needed:
                await self._check(self._roles, context, method, needed)

        def note(context: Any, request: Any) -> None:
            self._note(context, method, "accepted", request)

        return self._guarded(handler, check, note)

    async def _check(self, known: Roles, context: Any, method: str, needed: frozenset[Role]) -> None:
        names, token = certificate_names(context), bearer_token(context)
        roles = known.of(names, token)
        if roles & needed:
            return
        self._note(context, method, "refused")
        code, text = lacking(method.rpartition("/")[2], needed, roles, names, token)
        if Role.AGENT in needed:
            self._refused(code.name.lower())
        self._log.warning("peer refused", peer=context.peer(), status=code.name, reason=text)
        await context.abort(code, text)

    def _note(self, context: Any, method: str, outcome: str, request: Any = None) -> None:
        if self._access_log is not None and method.startswith(_LOGGED):
            names, token = certificate_names(context), bearer_token(context)
            roles = frozenset[Role]() if self._roles is None else self._roles.of(names, token)
            name = method.rpartition("/")[2]
            self._access_log.note(name, describe_client(names, token, context.peer()), roles, outcome, request)

    def _guarded(self, handler: Any, check: Check, note: Note) -> Any:
        """Wrap ``handler`` with the check. A single request is read as a stream of one, so that it is read after the check."""
        kind = next(kind for kind in _KINDS if getattr(handler, kind) is not None)
        inner = getattr(handler, kind)
        if not (inspect.isasyncgenfunction(inner) or inspect.iscoroutinefunction(inner)):
            raise TypeError(f"{inner}: handlers of this service must be asynchronous")
        single = not handler.request_streaming

        async def request_of(given: Any, context: Any) -> Any:
            await check(context)
            request = await self._single(given, handler.request_deserializer, context) if single else given
            note(context, request)
            return request

        async def call(given: Any, context: Any) -> Any:
            return await inner(await request_of(given, context), context)

        async def items(given: Any, context: Any) -> AsyncIterator[Any]:
            async for item in inner(await request_of(given, context), context):
                await check(context)
                yield item

        make = grpc.stream_stream_rpc_method_handler if handler.response_streaming else grpc.stream_unary_rpc_method_handler
        behaviour = items if inspect.isasyncgenfunction(inner) else call
        return make(behaviour, None if single else handler.request_deserializer, handler.response_serializer)

    async def _single(self, given: AsyncIterator[bytes], deserialize: Callable[[bytes], Any], context: Any) -> Any:
        """Read the single request of a call, within bounds on size, time and number."""
        status, text = grpc.StatusCode.INVALID_ARGUMENT, "the call has no request"

        async def read() -> bytes | None:
            return await anext(aiter(given), None)

        try:
            data = await self._first_messages.read(context.peer(), read, REQUEST_SECONDS_MAX)
        except TimeoutError:
            status, data = grpc.StatusCode.DEADLINE_EXCEEDED, None
            text = f"no request within {REQUEST_SECONDS_MAX:g} s, or {PATIENCE_SECONDS:g} s while others wait"
        if data is not None and len(data) > REQUEST_BYTES_MAX:
            status, data = grpc.StatusCode.RESOURCE_EXHAUSTED, None
            text = f"a request is at most {REQUEST_BYTES_MAX} bytes"
        if data is None:
            await context.abort(status, text)
            raise AssertionError("abort raises")
        try:
            return deserialize(data)
        except DecodeError:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the request cannot be parsed")


def _named(names: Iterable[str]) -> str:
    """The name that says most about a client: a certificate for tests often has ``localhost``, too."""
    return min(names, key=lambda name: (is_loopback(name), name))


def lacking(
    name: str, needed: frozenset[Role], roles: frozenset[Role], names: frozenset[str], token: str
) -> tuple[grpc.StatusCode, str]:
    """The status and text for a client that has ``roles``, but none of those that the method ``name`` needs."""
    words = " or ".join(sorted(role.value for role in needed))
    if roles:
        who = _named(names) if names else "this token"
        has = " and ".join(sorted(role.value for role in roles))
        return grpc.StatusCode.PERMISSION_DENIED, f"{name} needs the role {words}; {who} is {has}"
    if names or token:
        who = _named(names) if names else "the token"
        return grpc.StatusCode.PERMISSION_DENIED, f"{name} needs the role {words}; {who} has none (--roles-file)"
    return grpc.StatusCode.UNAUTHENTICATED, f"{name} needs the role {words}: show a certificate or a bearer token"


def certificate_names(context: Any) -> frozenset[str]:
    """The names in the client's certificate: DNS names, URIs, IP addresses, ``email:...``; else its common name."""
    found = context.auth_context()
    names = [name for kind in ("peer_dns", "peer_uri", "peer_ip") for name in found.get(kind) or ()]
    names += [b"email:" + name for name in found.get("peer_email") or ()]
    return frozenset(name.decode("utf-8", "replace") for name in names or found.get("x509_common_name") or ())


def bearer_token(context: Any) -> str:
    """The token in ``authorization: Bearer ...``, or an empty string."""
    for key, value in context.invocation_metadata() or ():
        if key == "authorization" and isinstance(value, str) and value.lower().startswith(_BEARER):
            return value[len(_BEARER) :].strip()
    return ""


def who_is(context: Any) -> str:
    """Describe the client of a call for the audit log."""
    return describe_client(certificate_names(context), bearer_token(context), context.peer())


Check = Callable[[Any], Awaitable[None]]
Note = Callable[[Any, Any], None]
_KINDS = ("unary_unary", "unary_stream", "stream_unary", "stream_stream")
