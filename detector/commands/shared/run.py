"""Runs commands: errors become one line, Ctrl-C exits with 130, a closed pipe ends them silently."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence

import click

EXIT_WRONG = 2
EXIT_INTERRUPTED = 130
EXIT_PIPE = 141
EXIT_TERMINATED = 143


class CommandError(click.ClickException):
    """A one-line user error that says what to change; exit code 2."""

    exit_code = EXIT_WRONG

    def show(self, file: object = None) -> None:  # noqa: ARG002
        """Print the message on standard error."""
        click.echo(f"stilltrue: {one_line(self.format_message())}", err=True)


def one_line(text: str) -> str:
    """``text`` on one line."""
    return " ".join(text.split())


def run_command(command: click.Command, arguments: Sequence[str] | None = None) -> int:
    """Run ``command`` with ``arguments`` (None: this process's) and return its exit code."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # names may contain characters that the encoding lacks
    try:
        code = command.main(arguments, standalone_mode=False, prog_name="stilltrue")
        sys.stdout.flush()
    except BrokenPipeError:
        return _pipe_closed()
    except SystemExit:
        if not type(sys.stdout).__name__.endswith("PacifyFlushWrapper"):
            raise
        return _pipe_closed()  # click would exit with 1 on a closed pipe, which here is an answer
    except (click.exceptions.Exit, click.exceptions.Abort, click.ClickException, KeyboardInterrupt) as end:
        return _report(end)
    return code if isinstance(code, int) else 0


def _report(end: BaseException) -> int:
    """Print the error that ended the command, if there is one, and return the exit code."""
    match end:
        case click.exceptions.Exit():
            return end.exit_code
        case click.UsageError():
            _show_usage(end)
            return EXIT_WRONG
        case click.ClickException():
            end.show()
            return end.exit_code
        case _:
            return EXIT_INTERRUPTED


def _pipe_closed() -> int:
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # otherwise the interpreter reports an error at exit
    return EXIT_PIPE


def _show_usage(error: click.UsageError) -> None:
    path = error.ctx.command_path if error.ctx is not None else "stilltrue"
    click.echo(f"{path}: {one_line(error.format_message())} (see {path} --help)", err=True)
