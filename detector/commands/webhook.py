"""``stilltrue webhook``: the mutating admission webhook that puts the sidecar into pods that ask for it, over HTTPS."""

from __future__ import annotations

import json
import signal
import ssl
import threading
from collections.abc import Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import click

from detector.commands.shared.run import CommandError
from detector.ops.logs import Log, configure
from detector.service.settings import LOG_FORMATS
from detector.sidecar.injection import answer

REVIEW_BYTES_MAX = 4 * 2**20
CONNECTION_SECONDS_MAX = 10.0
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


class Certificate:
    """A certificate and its key on disk, reloaded when they are renewed."""

    def __init__(self, certificate: Path, key: Path) -> None:
        """Load them; raises ``OSError`` (``ssl.SSLError`` is one)."""
        self._files = certificate, key
        self._read: tuple[int, ...] = ()
        self._lock = threading.Lock()
        self._context = self._load()

    def context(self) -> ssl.SSLContext:
        """The context for a new connection; a pair of files that does not match (yet) leaves the previous one in use."""
        with self._lock:
            try:
                if self._stamps() != self._read:
                    self._context = self._load()
            except OSError:
                Log("stilltrue").warning("certificate not read", file=self._files[0])
            return self._context

    def _stamps(self) -> tuple[int, ...]:
        return tuple(file.stat().st_mtime_ns for file in self._files)

    def _load(self) -> ssl.SSLContext:
        stamps = self._stamps()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(*self._files)
        self._read = stamps
        return context


class Webhook(ThreadingHTTPServer):
    """Answers admission reviews; each connection, with its handshake, has its own thread."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, address: tuple[str, int], certificate: Certificate, sidecar: Mapping[str, Any], log: Log) -> None:
        """``sidecar`` is the container to inject, as the chart describes it."""
        self.certificate = certificate
        self.sidecar = sidecar
        self.log = log
        super().__init__(address, _Handler)

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Serve HTTP over TLS; called on the connection's thread."""
        request.settimeout(CONNECTION_SECONDS_MAX)
        with self.certificate.context().wrap_socket(request, server_side=True) as secured:
            super().finish_request(secured, client_address)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that do not speak TLS or disconnect."""


class _Handler(BaseHTTPRequestHandler):
    server: Webhook
    timeout = CONNECTION_SECONDS_MAX
    server_version = "stilltrue"
    sys_version = ""

    def do_GET(self) -> None:
        healthy = self.path == "/healthz"
        self._respond(HTTPStatus.OK if healthy else HTTPStatus.NOT_FOUND, b"ok\n" if healthy else b"not found\n")

    def do_POST(self) -> None:
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal():
            self._respond(HTTPStatus.LENGTH_REQUIRED, b"Content-Length is required\n")
            return
        if int(length) > REVIEW_BYTES_MAX:
            self._respond(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"at most {REVIEW_BYTES_MAX} bytes\n".encode())
            return
        body = self.rfile.read(int(length))
        if self.path.partition("?")[0] == "/inject":
            self._review(body)
        else:
            self._respond(HTTPStatus.NOT_FOUND, b"post an AdmissionReview to /inject\n")

    def _review(self, body: bytes) -> None:
        try:
            review = json.loads(body)
            answered = answer(review, self.server.sidecar)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            self.server.log.warning("review refused", reason=f"{type(error).__name__}: {error}")
            self._respond(HTTPStatus.BAD_REQUEST, b"not a valid AdmissionReview (admission.k8s.io/v1) of a pod\n")
            return
        response = answered["response"]
        self.server.log.info(
            "pod reviewed", namespace=review["request"].get("namespace"), injected="patch" in response,
            warning=" ".join(response.get("warnings", [])) or None,
        )  # fmt: skip
        self._respond(HTTPStatus.OK, json.dumps(answered).encode(), "application/json")

    def _respond(self, status: HTTPStatus, body: bytes, content_type: str = "text/plain; charset=utf-8") -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Silence the access log: probes arrive every few seconds, and reviews are logged as events."""


@click.command(short_help="Run the webhook that injects the sidecar into pods.")
@click.option("--host", default="127.0.0.1", show_default=True, show_envvar=True, help="Address to listen on.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8443, show_default=True, show_envvar=True, help="Port; 0: any free port."
)
@click.option(
    "--tls-cert-file", type=_FILE, required=True, show_envvar=True, help="PEM certificate; reloaded when it is renewed."
)
@click.option("--tls-key-file", type=_FILE, required=True, show_envvar=True, help="PEM private key of that certificate.")
@click.option("--sidecar-file", type=_FILE, required=True, show_envvar=True, help="The container to inject, as JSON.")
@click.option(
    "--log-format",
    type=click.Choice(LOG_FORMATS),
    default="logfmt",
    show_default=True,
    show_envvar=True,
    help="Log format.",
)
def webhook(host: str, port: int, tls_cert_file: Path, tls_key_file: Path, sidecar_file: Path, log_format: str) -> None:
    """Answer Kubernetes admission reviews: inject the sidecar into pods annotated stilltrue.dev/inject: "true".

    The chart runs it (injector.enabled) with failurePolicy Ignore: while it is down, pods start without a sidecar.

    \b
    Example:
      stilltrue webhook --tls-cert-file tls.crt --tls-key-file tls.key --sidecar-file sidecar.json
    """
    configure(log_format)
    try:
        sidecar = json.loads(sidecar_file.read_text())
        server = Webhook((host, port), Certificate(tls_cert_file, tls_key_file), sidecar, Log("stilltrue"))
    except ValueError as error:
        raise CommandError(f"{sidecar_file}: invalid JSON: {error}") from None
    except OSError as error:
        raise CommandError(f"cannot listen on {host}:{port} or read the certificate: {error}") from None
    signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=server.shutdown, daemon=True).start())
    click.echo(f"listening https={host}:{server.server_address[1]}")
    server.serve_forever(0.2)
    server.server_close()
