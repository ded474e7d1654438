"""An option type for a day, which is written and explained as ``YYYY-MM-DD``."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import click

_FORMAT = "%Y-%m-%d"


class Day(click.DateTime):
    """A ``click.DateTime`` of a day; help and errors show what a day looks like, not a format string."""

    def __init__(self) -> None:
        super().__init__([_FORMAT])

    def get_metavar(self, *_given: Any, **_named: Any) -> str:
        """What the help shows for the value."""
        return "YYYY-MM-DD"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Convert ``value``."""
        try:
            return value if isinstance(value, datetime) else datetime.strptime(value, _FORMAT)
        except ValueError:
            self.fail(f"{value!r} is not a day; for example 2026-11-29.", param, ctx)
