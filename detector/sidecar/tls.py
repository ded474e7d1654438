"""TLS contexts from files, reloaded when the files change."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from detector.ops.files.watched_files import Signature, WatchedFiles
from stilltrue.runtime.membership.secret_file import writable_by_all

ALPN = ("h2",)


class TlsRefusedError(ValueError):
    """TLS files cannot be used; the message is one line that names them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFiles:
    """PEM files: certificate, key and CA bundle. Without a CA bundle, servers request no certificate and clients trust the
    system's CAs.
    """

    certificate: Path | None = None
    key: Path | None = None
    ca: Path | None = None


class Tls:
    """The TLS context of a client or server; new connections use the files last loaded by :meth:`reload_if_changed`."""

    def __init__(
        self,
        files: TlsFiles,
        *,
        server: bool,
        alpn: Sequence[str] = ALPN,
        on_handshake: Callable[[Tls], None] = lambda _: None,
    ) -> None:
        """``on_handshake`` is called before each handshake of a server. Raises :class:`TlsRefusedError`."""
        self._on_handshake = on_handshake
        self._files = files
        self._server = server
        self._alpn = list(alpn)
        self._watched = WatchedFiles(self._paths())
        signature = self._changed()
        self._current = self.context = self._make()
        self._watched.take(signature or ())
        if server:  # a listener keeps its first context; each handshake switches to the newest
            self.context.sni_callback = self._use_newest

    def reload_if_changed(self) -> bool:
        """Reload the files if they have changed; return whether they have. On :class:`TlsRefusedError` the old ones stay."""
        signature = self._changed()
        if signature is None:
            return False
        self._current = self._make()
        self._watched.take(signature)
        if not self._server:
            self.context = self._current
        return True

    def _use_newest(self, connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        self._on_handshake(self)
        connection.context = self._current

    def _make(self) -> ssl.SSLContext:
        files = self._files
        try:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if self._server else ssl.PROTOCOL_TLS_CLIENT)
            context.minimum_version = ssl.TLSVersion.TLSv1_2
            context.set_alpn_protocols(self._alpn)
            if files.key is not None and writable_by_all(files.key):
                raise TlsRefusedError(f"{files.key}: writable by all users (chmod o-w)")
            if files.certificate is not None:
                context.load_cert_chain(files.certificate, files.key)
            if files.ca is not None:
                context.load_verify_locations(files.ca)
                context.verify_mode = ssl.CERT_REQUIRED
            elif not self._server:
                context.load_default_certs()
        except (OSError, ssl.SSLError) as error:
            raise TlsRefusedError(f"TLS with {', '.join(map(str, self._paths()))}: {error}") from None
        return context

    def _changed(self) -> Signature | None:
        try:
            return self._watched.changed()
        except OSError as error:
            raise TlsRefusedError(f"TLS with {', '.join(map(str, self._paths()))}: {error}") from None

    def _paths(self) -> list[Path]:
        return [path for path in (self._files.certificate, self._files.key, self._files.ca) if path is not None]
