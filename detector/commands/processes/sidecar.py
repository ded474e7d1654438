"""``stilltrue sidecar``: runs the gRPC proxy that stamps and records the calls of an uninstrumented program."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

import click

from detector.commands.options.finite_range import FiniteRange
from detector.commands.options.shared_options import FILE, agent_options, log_format_option
from detector.commands.shared.own_process import mark_as_detectors
from detector.commands.shared.run import CommandError
from detector.ops.address import Address, AddressError, parse_address
from detector.ops.logs import Log, configure
from detector.ops.printable_text import printable
from detector.sidecar.app import CannotListenError, Listening, serve
from detector.sidecar.routing import BY_AUTHORITY, Upstreams, upstream_of
from detector.sidecar.settings import SettingError, SidecarSettings
from detector.sidecar.tls import TlsFiles, TlsRefusedError
from stilltrue.settings import SettingRefusedError

CHECK_SECONDS_MAX = 2.0
_REASON_BYTES_MAX = 1_000
_AGENT_FILES = ("tls_ca_file", "tls_cert_file", "tls_key_file", "token_file", "stamp_key_file")


def _option(*names: str, **more: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    return click.option(*names, show_envvar=True, **more)


@click.command(short_help="Run the sidecar proxy for an uninstrumented program.")
@_option("--service", envvar="STILLTRUE_SERVICE", help="The service that the program belongs to.  [default: program]")
@_option("--label", "labels", multiple=True, metavar="NAME=VALUE", help="A label of the process; repeatable.")
@agent_options
@_option("--app", default="127.0.0.1:50051", show_default=True, metavar="HOST:PORT", help="Address the program listens on.")
@_option("--inbound", default="127.0.0.1:15006", show_default=True, metavar="HOST:PORT", help="Accepts calls to the program.")
@_option(
    "--outbound", default="127.0.0.1:15001", show_default=True, metavar="HOST:PORT",
    help="Accepts calls from the program; used with --upstream.",
)  # fmt: skip
@_option(
    "--upstream", "upstreams", multiple=True, metavar="[NAME=]HOST:PORT",
    help=f"Target of calls to the authority NAME; without NAME: of all others. {BY_AUTHORITY}: as --upstream-by-authority.",
)  # fmt: skip
@_option(
    "--upstream-by-authority",
    is_flag=True,
    help="Send a call whose authority names no upstream to the authority itself.",
)
@_option("--workers", type=click.IntRange(0), help="Number of calls the program serves at once while others queue; 0: unknown.")
@_option(
    "--fan-out", default="one", show_default=True, type=click.Choice(["one", "all"]),
    help="Whether a handler with several outstanding calls waits for one of them or for all.",
)  # fmt: skip
@_option(
    "--never-awaited", multiple=True, metavar="/PACKAGE.SERVICE/METHOD",
    help="A method that handlers call without waiting for the reply; repeatable.",
)  # fmt: skip
@_option(
    "--call-seconds-max", type=FiniteRange(0),
    help="The program ends each call after this time (its maximum connection age and grace period); 0: it does not.",
)  # fmt: skip
@_option(
    "--party-metadata/--no-party-metadata", "tells_party", default=True, show_default=True,
    help="Add the header stilltrue-party to each request, for the program to forward.",
)  # fmt: skip
@_option("--admin-host", default="127.0.0.1", show_default=True, help="Address of the admin pages (HTTP).")
@_option("--admin-port", default=7602, show_default=True, type=click.IntRange(0, 65535), help="Port of the admin pages.")
@_option(
    "--drain-seconds-max", default=25.0, show_default=True, type=FiniteRange(0, 3600),
    help="Time for calls in progress to finish after SIGTERM.",
)  # fmt: skip
@_option("--inbound-tls-cert-file", type=FILE, help="PEM certificate for --inbound; enables TLS.")
@_option("--inbound-tls-key-file", type=FILE, help="PEM private key of that certificate.")
@_option("--inbound-tls-client-ca-file", type=FILE, help="PEM CA bundle used to verify callers; enables mTLS.")
@_option("--upstream-tls", is_flag=True, help="Connect to the upstreams with TLS.")
@_option("--upstream-tls-ca-file", type=FILE, help="PEM CA bundle to verify upstreams with.  [default: the system's]")
@_option("--upstream-tls-cert-file", type=FILE, help="PEM client certificate for the upstreams.")
@_option("--upstream-tls-key-file", type=FILE, help="PEM private key of that certificate.")
@_option(
    "--stamp-key-file", envvar="STILLTRUE_STAMP_KEY_FILE", type=FILE,
    help="File with the shared stamp keys, one per line: the first signs; stamps signed with none of them are ignored.",
)  # fmt: skip
@log_format_option
@click.option("--check", is_flag=True, help="Check whether the sidecar on this host is ready: exit code 0 or 1.")
def sidecar(**given: Any) -> None:
    """Run a gRPC proxy that stamps and records the calls of a program in any language, without changing its code.

    Point the program's callers at --inbound, and the program itself at --outbound instead of its upstreams, with the upstream's
    name as the authority. Admin endpoints: /healthz /readyz /metadata /metrics.

    \b
    Examples:
      stilltrue sidecar --service orders --app 127.0.0.1:50051 --upstream stock=stock.shop:50051 --workers 10
      stilltrue sidecar --service orders --upstream-by-authority --detector stilltrue:7600
      stilltrue sidecar --check
    """
    try:
        settings = _settings(given)
        if given["check"]:
            return _check(settings)
        configure(given["log_format"])
        mark_as_detectors()
        asyncio.run(serve(settings, lambda listening: _started(settings, listening)))
    except (SettingError, SettingRefusedError, TlsRefusedError, CannotListenError) as error:
        raise CommandError(str(error)) from None
    return None


def _settings(given: dict[str, Any]) -> SidecarSettings:
    return SidecarSettings(
        program=_address("--app", given["app"]),
        inbound=_address("--inbound", given["inbound"]),
        outbound=_address("--outbound", given["outbound"]),
        admin=Address(host=given["admin_host"], port=given["admin_port"]),
        upstreams=_upstreams(given),
        workers=given["workers"] or None,
        needs_all=given["fan_out"] == "all",
        never_awaited=given["never_awaited"],
        call_seconds_max=given["call_seconds_max"] or None,
        tells_party=given["tells_party"],
        inbound_tls=_files(given, "inbound_tls", "client_ca_file"),
        upstream_tls=_files(given, "upstream_tls", "ca_file") or TlsFiles(),
        drain_seconds_max=given["drain_seconds_max"],
        agent=_agent(given),
    )


def _address(flag: str, text: str) -> Address:
    try:
        return parse_address(text)
    except AddressError as error:
        raise SettingError(f"{flag}: {error}") from None


def _upstreams(given: dict[str, Any]) -> Upstreams:
    texts = [text for text in given["upstreams"] if text != BY_AUTHORITY]
    by_authority = given["upstream_by_authority"] or len(texts) < len(given["upstreams"])
    try:
        named = dict(upstream_of(text) for text in texts)
    except AddressError as error:
        raise SettingError(f"--upstream: {error}") from None
    return Upstreams(named=named, by_authority=by_authority, tls=given["upstream_tls"])


def _files(given: dict[str, Any], prefix: str, ca: str) -> TlsFiles | None:
    flag = "--" + prefix.replace("_", "-")
    certificate, key, trusted = (given[f"{prefix}_{name}"] for name in ("cert_file", "key_file", ca))
    if (certificate is None) != (key is None):
        raise SettingError(f"{flag}-cert-file and {flag}-key-file must be given together")
    if certificate is None and prefix == "inbound_tls":
        if trusted is not None:
            raise SettingError(f"{flag}-client-ca-file: needs {flag}-cert-file")
        return None
    return TlsFiles(certificate=certificate, key=key, ca=trusted)


def _agent(given: dict[str, Any]) -> dict[str, object]:
    """The settings of the embedded agent; it reads those that are None from the environment."""
    agent: dict[str, object] = {name: given[name] for name in ("instance", "detector")}
    agent["service"] = given["service"] or "program"  # in any language
    pairs = [text.partition("=") for text in given["labels"]]
    if any(not name or not equals for name, equals, _ in pairs):
        raise SettingError("--label: must be NAME=VALUE")
    if pairs:
        agent["labels"] = {name: value for name, _, value in pairs}
    for name in _AGENT_FILES:
        if given[name] is not None:
            agent[name] = str(given[name])
    return agent


def _check(settings: SidecarSettings) -> None:
    admin = settings.admin
    address = Address(host="127.0.0.1" if admin.host == "0.0.0.0" else admin.host, port=admin.port)
    try:
        with urlopen(f"http://{address}/readyz", timeout=CHECK_SECONDS_MAX):
            return
    except HTTPError as error:
        reason = error.read(_REASON_BYTES_MAX).decode(errors="replace").strip() or str(error)
    except (URLError, OSError) as error:
        cause = getattr(error, "reason", error)
        reason = f"no sidecar answers at {address}: {getattr(cause, 'strerror', None) or cause}"
    click.echo(f"stilltrue: not ready: {printable(reason)}", err=True)
    raise click.exceptions.Exit(1)


def _started(settings: SidecarSettings, listening: Listening) -> None:
    outbound = listening.outbound or "off"
    click.echo(
        f"listening inbound={listening.inbound} app={settings.program} outbound={outbound} admin=http://{listening.admin}/"
    )
    if listening.outbound is None:
        Log("stilltrue").warning(
            "calls from the program are not seen",
            text="no --upstream is given, so nothing listens on --outbound; right only for a program that calls no other",
        )
