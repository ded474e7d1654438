"""The option ``--set PREDICATE.KEY=VALUE`` of the commands that evaluate several predicates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from detector.service.settings import SettingError, predicate_settings_from_texts


def predicate_settings(variable: str) -> Callable[[Any], Any]:
    """The option, passed as ``settings`` by predicate; ``variable`` is its environment variable."""
    return click.option(
        "--set", "settings", multiple=True, metavar="PREDICATE.KEY=VALUE", envvar=variable, show_envvar=True,
        callback=_parsed, help="A predicate setting, such as token-lost.expected=3; that predicate is then evaluated, too.",
    )  # fmt: skip


def _parsed(_context: click.Context, _parameter: click.Parameter, texts: tuple[str, ...]) -> dict[str, dict[str, Any]]:
    try:
        return predicate_settings_from_texts(texts)
    except SettingError as error:
        raise click.UsageError(str(error)) from None
