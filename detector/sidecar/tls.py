"""TLS to the outside: contexts made from files, which follow the files when these are replaced."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path

ALPN = ["h2"]


class TlsRefusedError(ValueError):
    """Files that make no TLS; one line that names the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFiles:
    """PEM files: who we are, and whom we trust (None: for a server nobody is asked, for a client the system decides)."""

    certificate: Path | None = None
    key: Path | None = None
    ca: Path | None = None


class Tls:
    """A context of one side. New connections use what :meth:`follow` loaded last; a pair that does not fit is not taken."""

    def __init__(self, files: TlsFiles, *, server: bool) -> None:
        """Raises :class:`TlsRefusedError`."""
        self._files = files
        self._server = server
        self._seen = self._times()
        self._current = self.context = self._make()
        if server:  # a listener keeps the context that it began with; each handshake is handed the newest
            self.context.sni_callback = self._hand_newest

    def follow(self) -> bool:
        """Load the files anew if they changed; whether they had. Raises :class:`TlsRefusedError`, and keeps what was."""
        times = self._times()
        if times == self._seen:
            return False
        self._current = self._make()
        self._seen = times
        if not self._server:
            self.context = self._current
        return True

    def _hand_newest(self, connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        connection.context = self._current

    def _make(self) -> ssl.SSLContext:
        files = self._files
        try:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if self._server else ssl.PROTOCOL_TLS_CLIENT)
            context.minimum_version = ssl.TLSVersion.TLSv1_2
            context.set_alpn_protocols(ALPN)
            if files.certificate is not None:
                context.load_cert_chain(files.certificate, files.key)
            if files.ca is not None:
                context.load_verify_locations(files.ca)
                context.verify_mode = ssl.CERT_REQUIRED
            elif not self._server:
                context.load_default_certs()
        except (OSError, ssl.SSLError) as error:
            named = ", ".join(str(path) for path in (files.certificate, files.key, files.ca) if path is not None)
            raise TlsRefusedError(f"TLS with {named}: {error}") from None
        return context

    def _times(self) -> tuple[int, ...]:
        paths = (self._files.certificate, self._files.key, self._files.ca)
        return tuple(path.stat().st_mtime_ns for path in paths if path is not None and path.exists())
