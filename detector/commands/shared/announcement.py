"""The line with the addresses that a service prints when it has started."""

from __future__ import annotations

import sys

import click

from detector.ops.logs import Log


def announce(line: str, event: str, **values: object) -> None:
    """Print ``line``, and log it as ``event`` with ``values``: not to a terminal that has just shown the line."""
    click.echo(line)
    if not (sys.stdout.isatty() and sys.stderr.isatty()):
        Log("stilltrue").info(event, **values)
