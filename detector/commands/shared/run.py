"""How every command ends: errors as one line, ctrl-C as 130, a reader that went away without a word."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence

import click

EXIT_WRONG = 2
EXIT_INTERRUPTED = 130
EXIT_PIPE = 141


class CommandError(click.ClickException):
    """What the user has to change, in one line; exit code 2."""

    exit_code = EXIT_WRONG

    def show(self, file: object = None) -> None:  # noqa: ARG002
        """One line on standard error."""
        click.echo(f"stilltrue: {one_line(self.format_message())}", err=True)


def one_line(text: str) -> str:
    """``text`` without its line breaks."""
    return " ".join(text.split())


def quietly(command: click.Command, arguments: Sequence[str] | None = None) -> int:
    """Run ``command`` with ``arguments`` (None: those of this process): its exit code."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a stranger's name may hold what no encoding can write
    try:
        code = command.main(arguments, standalone_mode=False, prog_name="stilltrue")
        sys.stdout.flush()
    except BrokenPipeError:
        return _reader_gone()
    except SystemExit:
        if not type(sys.stdout).__name__.endswith("PacifyFlushWrapper"):
            raise
        return _reader_gone()  # click ends with 1 when the reader goes away, which is another answer here
    except (click.exceptions.Exit, click.exceptions.Abort, click.ClickException, KeyboardInterrupt) as end:
        return _told(end)
    return code if isinstance(code, int) else 0


def _told(end: BaseException) -> int:
    """Say why the command ended, where that needs words: its exit code."""
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


def _reader_gone() -> int:
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # or the interpreter complains when it ends
    return EXIT_PIPE


def _show_usage(error: click.UsageError) -> None:
    path = error.ctx.command_path if error.ctx is not None else "stilltrue"
    click.echo(f"{path}: {one_line(error.format_message())} (see {path} --help)", err=True)
