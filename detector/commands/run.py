"""How every command ends: errors as one line, ctrl-C as 130, a reader that went away without a word."""

from __future__ import annotations

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
    try:
        code = command.main(arguments, standalone_mode=False, prog_name="stilltrue")
        sys.stdout.flush()
    except click.exceptions.Exit as end:
        return end.exit_code
    except (KeyboardInterrupt, click.exceptions.Abort):
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or the interpreter complains when it ends
        return EXIT_PIPE
    except click.UsageError as error:
        _show_usage(error)
        return EXIT_WRONG
    except click.ClickException as error:
        error.show()
        return error.exit_code
    return code if isinstance(code, int) else 0


def _show_usage(error: click.UsageError) -> None:
    path = error.ctx.command_path if error.ctx is not None else "stilltrue"
    click.echo(f"{path}: {one_line(error.format_message())} (see {path} --help)", err=True)
