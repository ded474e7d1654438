"""A question on the terminal before something is done that cannot be taken back."""

from __future__ import annotations

import sys

import click


def confirmed(question: str, *, otherwise: str) -> bool:
    """Ask on the terminal. If the answer is no, or standard input has none, print ``otherwise`` and why."""
    try:
        agreed, why = click.confirm(question, err=True), ""
    except click.Abort:
        if sys.stdin.isatty():
            raise
        agreed, why = False, ": standard input has no answer; --yes skips the question"
        click.echo(err=True)
    if not agreed:
        click.echo(f"{otherwise}{why}", err=True)
    return agreed
