"""``stilltrue webhook``: the HTTPS admission webhook that injects the sidecar or the agent into annotated pods."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Mapping
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any

import click
from aiohttp import web

from detector.commands.options.shared_options import FILE, log_format_option
from detector.commands.shared.run import CommandError
from detector.ops.address import why_not_bound
from detector.ops.http import Answer, HttpServer
from detector.ops.logs import Log, configure
from detector.sidecar.injection import answer
from detector.sidecar.tls import Tls, TlsFiles, TlsRefusedError

REVIEW_BYTES_MAX = 4 * 2**20


class Webhook:
    """Answers admission reviews."""

    def __init__(self, sidecar: Mapping[str, Any], log: Log, agent: Mapping[str, Any] | None = None) -> None:
        """``sidecar`` is the container to inject, ``agent`` the agent's init container, in the chart's format."""
        self._sidecar = sidecar
        self._agent = agent
        self._log = log

    async def answer(self, request: web.BaseRequest) -> Answer | None:
        """Answer a review or a health check; None for any other path."""
        if request.method != "POST":
            return Answer(body="ok\n") if request.path == "/healthz" else None
        if request.path != "/inject":
            return Answer(status=HTTPStatus.NOT_FOUND, body="post an AdmissionReview to /inject\n")
        body = await request.content.read(REVIEW_BYTES_MAX + 1)
        while len(body) <= REVIEW_BYTES_MAX and (more := await request.content.read(REVIEW_BYTES_MAX + 1)):
            body += more
        if len(body) > REVIEW_BYTES_MAX:
            return Answer(status=HTTPStatus.REQUEST_ENTITY_TOO_LARGE, body=f"at most {REVIEW_BYTES_MAX} bytes\n")
        return self._review(body)

    def _review(self, body: bytes) -> Answer:
        try:
            review = json.loads(body)
            answered = answer(review, self._sidecar, self._agent)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            self._log.warning("review refused", reason=f"{type(error).__name__}: {error}")
            text = "not a valid AdmissionReview (admission.k8s.io/v1) of a pod\n"
            return Answer(status=HTTPStatus.BAD_REQUEST, body=text)
        response = answered["response"]
        metadata = (review["request"].get("object") or {}).get("metadata") or {}
        warning = " ".join(response.get("warnings", [])) or None
        (self._log.warning if warning else self._log.info)(
            "pod reviewed", namespace=review["request"].get("namespace"),
            pod=metadata.get("name") or metadata.get("generateName"), injected="patch" in response, warning=warning,
        )  # fmt: skip
        return Answer(body=json.dumps(answered), content_type="application/json")


async def serve(host: str, port: int, tls: Tls, hook: Webhook, log: Log) -> None:
    """Serve until SIGTERM or SIGINT. Raises ``OSError`` if it cannot listen."""
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    server = HttpServer(hook.answer, log=log, methods=("GET", "HEAD", "POST"))
    bound = await server.start(host, port, tls.context)
    click.echo(f"listening https={host}:{bound}")
    await stop.wait()
    await server.stop()


def _reload_certificate(log: Log, tls: Tls) -> None:
    """Reload a renewed certificate; while its files do not match, the previous one stays in use."""
    try:
        if tls.reload_if_changed():
            log.info("certificate reloaded")
    except TlsRefusedError as error:
        log.warning("certificate not reloaded; the previous one stays in use", text=str(error))


@click.command(short_help="Run the webhook that injects the sidecar or the agent into pods.")
@click.option("--host", default="127.0.0.1", show_default=True, show_envvar=True, help="Address to listen on.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8443, show_default=True, show_envvar=True, help="0 picks a free port."
)
@click.option("--tls-cert-file", type=FILE, required=True, show_envvar=True, help="PEM certificate; reloaded when it changes.")
@click.option("--tls-key-file", type=FILE, required=True, show_envvar=True, help="PEM private key of that certificate.")
@click.option("--sidecar-file", type=FILE, required=True, show_envvar=True, help="JSON file with the container to inject.")
@click.option(
    "--agent-file", type=FILE, show_envvar=True, help="JSON file with the Python agent's init container; default: none."
)
@log_format_option
def webhook(
    host: str,
    port: int,
    tls_cert_file: Path,
    tls_key_file: Path,
    sidecar_file: Path,
    agent_file: Path | None,
    log_format: str,
) -> None:
    """Answer Kubernetes admission reviews: inject the sidecar into pods annotated stilltrue.dev/inject: "true".

    Pods annotated stilltrue.dev/inject-python: "true" get the Python agent instead, without a proxy.
    The chart runs it (injector.enabled) with failurePolicy Ignore: while it is down, pods start without them.

    \b
    Example:
      stilltrue webhook --tls-cert-file tls.crt --tls-key-file tls.key --sidecar-file sidecar.json
    """
    configure(log_format)
    log = Log("stilltrue")
    try:
        sidecar = json.loads(sidecar_file.read_text())
        agent = None if agent_file is None else json.loads(agent_file.read_text())
        tls = Tls(
            TlsFiles(certificate=tls_cert_file, key=tls_key_file),
            server=True,
            alpn=("http/1.1",),
            on_handshake=partial(_reload_certificate, log),
        )
        asyncio.run(serve(host, port, tls, Webhook(sidecar, log, agent), log))
    except TlsRefusedError as error:
        raise CommandError(str(error)) from None
    except ValueError as error:
        raise CommandError(f"{sidecar_file} or {agent_file}: invalid JSON: {error}") from None
    except OSError as error:
        raise CommandError(f"cannot listen on {host}:{port}: {why_not_bound(error)}") from None
