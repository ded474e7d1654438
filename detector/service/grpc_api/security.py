"""Who may speak with the detector: TLS and mTLS with certificates that may rotate, and the roles of those who are let in."""

from __future__ import annotations

import inspect
import ssl
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from detector.ops.logs import Log
from detector.service.grpc_api.roles import Role, Roles, SecurityError, wanted

_BEARER = "bearer "


@dataclass(frozen=True, slots=True, kw_only=True)
class Files:
    """The PEM files of a server: its certificate (with the chain) and key; and who signs its peers' (None: nobody is asked)."""

    certificate: Path
    key: Path
    client_ca: Path | None = None


# -- certificates ------------------------------------------------------------------------------------------------------


class Certificates:
    """Server credentials that follow their files: every handshake uses the newest pair that fits together."""

    def __init__(self, files: Files, log: Log) -> None:
        """Raises :class:`SecurityError`."""
        self._files = files
        self._log = log
        self._lock = threading.Lock()
        self._seen = self._times()
        self._first = self._read()

    def credentials(self) -> grpc.ServerCredentials:
        """For :meth:`grpc.aio.Server.add_secure_port`. With a ``client_ca``, peers without its certificate are refused."""
        newer: Any = self._newer  # the stubs do not know that None means no change
        return grpc.dynamic_ssl_server_credentials(
            self._first, newer, require_client_authentication=self._files.client_ca is not None
        )

    def _newer(self) -> grpc.ServerCertificateConfiguration | None:
        """Asked at each handshake, on a thread of gRPC's: what to use from now on, or None to go on."""
        with self._lock:
            try:
                times = self._times()
                if times == self._seen:
                    return None
                read = self._read()
            except SecurityError as error:
                self._log.warning("certificates not reloaded, those before stay", text=str(error))
                return None
            self._seen = times
        self._log.info("certificates reloaded", certificate=self._files.certificate)
        return read

    def _times(self) -> tuple[tuple[int, int], ...]:
        try:
            stats = [path.stat() for path in self._paths()]
        except OSError as error:
            raise SecurityError(f"{error.filename}: {error.strerror}") from None
        return tuple((stat.st_mtime_ns, stat.st_ino) for stat in stats)

    def _paths(self) -> list[Path]:
        files = self._files
        return [path for path in (files.certificate, files.key, files.client_ca) if path is not None]

    def _read(self) -> grpc.ServerCertificateConfiguration:
        texts = {path: _pem(path) for path in self._paths()}
        files = self._files
        check_pair(files.certificate, files.key)
        ca = None if files.client_ca is None else texts[files.client_ca]
        return grpc.ssl_server_certificate_configuration([(texts[files.key], texts[files.certificate])], ca)


def _pem(path: Path) -> bytes:
    try:
        text = path.read_bytes()
    except OSError as error:
        raise SecurityError(f"{path}: {error.strerror}") from None
    if b"-----BEGIN " not in text:
        raise SecurityError(f"{path}: no PEM")
    return text


def check_pair(certificate: Path, key: Path) -> None:
    """Refuse a key that is not the certificate's, as between the two steps of a careless rotation."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(certificate, key)
    except (ssl.SSLError, OSError) as error:
        raise SecurityError(f"{certificate} and {key}: {getattr(error, 'reason', None) or error}") from None


# -- the guard ---------------------------------------------------------------------------------------------------------


class Guard(grpc.aio.ServerInterceptor):
    """Refuses whoever has no role for what they call: UNAUTHENTICATED if nobody knows them, else PERMISSION_DENIED."""

    def __init__(self, roles: Roles, refused: Callable[[str], None], log: Log) -> None:
        """``refused`` counts the agents that are not let in, by reason."""
        self._roles = roles
        self._refused = refused
        self._log = log

    async def intercept_service(self, continuation: Callable[[Any], Awaitable[Any]], handler_call_details: Any) -> Any:
        """As :meth:`grpc.aio.ServerInterceptor.intercept_service`."""
        handler = await continuation(handler_call_details)
        method = str(handler_call_details.method)
        needed = wanted(method)
        if handler is None or not needed:
            return handler
        return _guarded(handler, lambda context: self._check(context, method, needed))

    async def _check(self, context: Any, method: str, needed: frozenset[Role]) -> None:
        names, token = certificate_names(context), bearer_token(context)
        roles = self._roles.of(names, token)
        if roles & needed:
            return
        name = method.rpartition("/")[2]
        words = " or ".join(sorted(role.value for role in needed))
        if roles:
            who = min(names) if names else "this token"
            has = " and ".join(sorted(role.value for role in roles))
            code, text = grpc.StatusCode.PERMISSION_DENIED, f"{name} needs the role {words}; {who} is {has}"
        elif names or token:
            who = min(names) if names else "the token"
            code, text = grpc.StatusCode.PERMISSION_DENIED, f"{name} needs the role {words}; {who} has none (--roles-file)"
        else:
            code, text = grpc.StatusCode.UNAUTHENTICATED, f"{name} needs the role {words}: show a certificate or a bearer token"
        if Role.AGENT in needed:
            self._refused(code.name.lower())
        self._log.warning("peer refused", peer=context.peer(), status=code.name, reason=text)
        await context.abort(code, text)


def certificate_names(context: Any) -> frozenset[str]:
    """The names in the peer's certificate: its alternative names, or its common name if it has none."""
    found = context.auth_context()
    names = found.get("x509_subject_alternative_name") or found.get("x509_common_name") or ()
    return frozenset(name.decode("utf-8", "replace") for name in names)


def bearer_token(context: Any) -> str:
    """The token in ``authorization: Bearer ...``, or nothing."""
    for key, value in context.invocation_metadata() or ():
        if key == "authorization" and isinstance(value, str) and value.lower().startswith(_BEARER):
            return value[len(_BEARER) :].strip()
    return ""


Check = Callable[[Any], Awaitable[None]]
_KINDS = ("unary_unary", "unary_stream", "stream_unary", "stream_stream")


def _guarded(handler: Any, check: Check) -> Any:
    """``handler``, but what it does is done only after the check."""
    kind = next(kind for kind in _KINDS if getattr(handler, kind) is not None)
    inner = getattr(handler, kind)
    if inspect.isasyncgenfunction(inner):
        behaviour: Any = _guarded_items(inner, check)
    elif inspect.iscoroutinefunction(inner):
        behaviour = _guarded_call(inner, check)
    else:
        raise TypeError(f"{inner}: a handler of this service is asynchronous")
    make = getattr(grpc, f"{kind}_rpc_method_handler")
    return make(behaviour, handler.request_deserializer, handler.response_serializer)


def _guarded_call(inner: Any, check: Check) -> Any:
    async def call(request: Any, context: Any) -> Any:
        await check(context)
        return await inner(request, context)

    return call


def _guarded_items(inner: Any, check: Check) -> Any:
    async def items(request: Any, context: Any) -> AsyncIterator[Any]:
        await check(context)
        async for item in inner(request, context):
            yield item

    return items
