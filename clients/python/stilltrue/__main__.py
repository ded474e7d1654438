"""The agent's own command line: ``python -m stilltrue run -- python app.py``, the same as the detector's `stilltrue run`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from stilltrue.launch import copy_package, run
from stilltrue.protocol.address import is_address, what_is_wrong
from stilltrue.version import __version__

DESCRIPTION = "Run a program with the agent, without changing its code. Its child processes get the agent too."
EPILOG = """All other settings are environment variables (STILLTRUE_INSTANCE, STILLTRUE_LABELS ...).
Example: python -m stilltrue run --service orders -- gunicorn orders.wsgi:app"""
OTHERS = "The detector and its commands (stilltrue serve, ask ...) are in another package, stilltrue-detector."


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code, unless this process becomes the program."""
    parser = argparse.ArgumentParser(prog="python -m stilltrue", description="The Stilltrue agent.", epilog=OTHERS)
    parser.add_argument("--version", action="version", version=f"stilltrue {__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    copy = commands.add_parser("copy", help="copy the agent into a folder, for programs in other environments")
    copy.add_argument("folder", type=Path, help="the target folder; prints the path to put on PYTHONPATH")
    launch = commands.add_parser("run", help="run a program with the agent", description=DESCRIPTION, epilog=EPILOG)
    launch.add_argument(
        "--service",
        help="the service that the program belongs to (default: STILLTRUE_SERVICE, OTEL_SERVICE_NAME or the program's name)",
    )
    launch.add_argument("--detector", metavar="HOST:PORT", help="the detector (default: STILLTRUE_DETECTOR or 127.0.0.1:7600)")
    launch.add_argument("program", nargs=argparse.REMAINDER, metavar="-- COMMAND [ARGUMENT ...]")
    words = sys.argv[1:] if arguments is None else arguments
    if words and not words[0].startswith("-") and words[0] not in commands.choices:
        parser.error(f"no such command: {words[0]}. {OTHERS}")
    given = parser.parse_args(arguments)
    if given.command == "copy":
        try:
            sys.stdout.write(f"{copy_package(given.folder)}\n")
        except OSError as error:
            each = error.args[0] if error.args else ""  # for shutil.Error: source, target and text of each file
            text = f"{each[0][1]}: {each[0][2]}" if isinstance(each, list) else f"{error.filename}: {error.strerror}"
            copy.error(text)
        return 0
    if given.detector and not is_address(given.detector):
        launch.error(f"--detector: {what_is_wrong(given.detector)}")
    program = given.program[1:] if given.program[:1] == ["--"] else given.program
    if not program:
        launch.error("no command given: python -m stilltrue run -- python app.py")
    settings = {"STILLTRUE_SERVICE": given.service, "STILLTRUE_DETECTOR": given.detector}
    return run(program, {name: value for name, value in settings.items() if value})


if __name__ == "__main__":
    sys.exit(main())
