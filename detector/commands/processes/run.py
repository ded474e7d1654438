"""``stilltrue run``: runs a program with the agent; the agent's package alone has ``python -m stilltrue run``."""

from __future__ import annotations

import sys

import click

from detector.commands.options import completed_names as names
from stilltrue.launch import run as run_program
from stilltrue.protocol.address import is_address, what_is_wrong


@click.command(context_settings={"allow_interspersed_args": False})
@click.option(
    "--service",
    help="The service that the program belongs to. Default: STILLTRUE_SERVICE, OTEL_SERVICE_NAME or the program's name.",
)
@click.option("--detector", metavar="HOST:PORT", help="The detector. Default: STILLTRUE_DETECTOR, else 127.0.0.1:7600.")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, shell_complete=names.programs_and_files)
def run(service: str | None, detector: str | None, command: tuple[str, ...]) -> None:
    """Run COMMAND with the agent, without changing its code. Its child processes get the agent too.

    All other settings are environment variables (STILLTRUE_INSTANCE, STILLTRUE_LABELS ...).

    \b
    Example:
      stilltrue run -- python app.py
      stilltrue run --service orders -- gunicorn orders.wsgi:app
    """
    if detector and not is_address(detector):
        raise click.BadParameter(what_is_wrong(detector), param_hint="--detector")
    settings = {"STILLTRUE_SERVICE": service, "STILLTRUE_DETECTOR": detector}
    sys.exit(run_program(command, {name: value for name, value in settings.items() if value}))
