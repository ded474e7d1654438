"""The agent's own command: ``python -m stilltrue run -- python app.py``; the detector's `stilltrue run` is the same."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from stilltrue.launch import copy_package, is_address, run
from stilltrue.version import __version__

DESCRIPTION = "Run a program with the agent, without changing its code. Its child processes get it too."
EPILOG = """Everything else is set by environment variables (STILLTRUE_LABELS, STILLTRUE_EXCLUDED_METHODS ...).
Example: python -m stilltrue run --service orders -- gunicorn orders.wsgi:app"""


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code; does not return where the program begins."""
    parser = argparse.ArgumentParser(prog="python -m stilltrue", description="The Stilltrue agent.")
    parser.add_argument("--version", action="version", version=f"stilltrue {__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    copies = commands.add_parser("copy", help="copy the agent into a folder, for programs of other environments")
    copies.add_argument("folder", type=Path, help="where to; prints what to put on PYTHONPATH")
    runs = commands.add_parser("run", help="run a program with the agent in it", description=DESCRIPTION, epilog=EPILOG)
    runs.add_argument("--service", help="the service that the program belongs to (default: the program's name)")
    runs.add_argument("--detector", metavar="HOST:PORT", help="the detector's address")
    runs.add_argument("program", nargs=argparse.REMAINDER, metavar="-- COMMAND [ARGUMENT ...]")
    given = parser.parse_args(arguments)
    if given.command == "copy":
        sys.stdout.write(f"{copy_package(given.folder)}\n")
        return 0
    if given.detector and not is_address(given.detector):
        runs.error(f"--detector: {given.detector} is not HOST:PORT")
    program = given.program[1:] if given.program[:1] == ["--"] else given.program
    if not program:
        runs.error("a command is needed: python -m stilltrue run -- python app.py")
    settings = {"STILLTRUE_SERVICE": given.service, "STILLTRUE_DETECTOR": given.detector}
    return run(program, {name: value for name, value in settings.items() if value})


if __name__ == "__main__":
    sys.exit(main())
