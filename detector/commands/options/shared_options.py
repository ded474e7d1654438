"""Options that several commands have."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from detector.commands.shared.run import CommandError
from detector.ops.address import Address, AddressError, parse_address
from detector.service.settings import LOG_FORMATS, SettingError, predicate_settings_from_texts

FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


log_format_option = click.option(
    "--log-format", type=click.Choice(LOG_FORMATS), default="logfmt", show_default=True, show_envvar=True, help="Log format."
)


def agent_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of a process that reports to a detector: its name, the detector's address, and credentials."""
    options = (
        ("--instance", None, "Name of this process, unique among all processes.  [default: from POD_NAME or the host]"),
        ("--detector", None, "Address of the detector.  [default: 127.0.0.1:7600]"),
        ("--tls-ca-file", FILE, "PEM CA bundle to verify the detector with."),
        ("--tls-cert-file", FILE, "PEM client certificate for the detector."),
        ("--tls-key-file", FILE, "PEM private key of that certificate."),
        ("--token-file", FILE, "File with the bearer token for the detector."),
    )
    for flag, kind, text in reversed(options):
        variable = f"STILLTRUE_{flag.removeprefix('--').replace('-', '_').upper()}"
        metavar = "HOST:PORT" if flag == "--detector" else None
        command = click.option(flag, type=kind, metavar=metavar, envvar=variable, show_envvar=True, help=text)(command)
    return command


def metrics_option(variable: str, values: str) -> Decorator:
    """``--metrics``, passed as an :class:`Address` or None; ``variable`` is its environment variable."""
    return click.option(
        "--metrics", metavar="HOST:PORT", envvar=variable, show_envvar=True, callback=_address,
        help=f"Serve /metrics for Prometheus here: {values}.",
    )  # fmt: skip


def _address(_context: click.Context, parameter: click.Parameter, text: str | None) -> Address | None:
    try:
        return None if text is None else parse_address(text)
    except AddressError as error:
        raise CommandError(f"{parameter.opts[0]}: {error}") from None


def predicate_settings(variable: str) -> Decorator:
    """``--set PREDICATE.KEY=VALUE``, passed as ``settings`` by predicate; ``variable`` is its environment variable."""
    return click.option(
        "--set", "settings", multiple=True, metavar="PREDICATE.KEY=VALUE", envvar=variable, show_envvar=True,
        callback=_settings, help="A predicate setting, such as token-lost.expected=3; that predicate is then evaluated, too.",
    )  # fmt: skip


def _settings(_context: click.Context, _parameter: click.Parameter, texts: tuple[str, ...]) -> dict[str, dict[str, Any]]:
    try:
        return predicate_settings_from_texts(texts)
    except SettingError as error:
        raise click.UsageError(str(error)) from None
