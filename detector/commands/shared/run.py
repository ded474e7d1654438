"""Runs commands: errors become one line, Ctrl-C exits with 130, a closed pipe ends them silently.

No failure exits with 1, which is an answer: ``ask`` exits with 1 if the predicate does not hold.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import re
import sys
import traceback
from collections.abc import Sequence
from difflib import get_close_matches

import click

EXIT_WRONG = 2
EXIT_INTERRUPTED = 130
EXIT_PIPE = 141
EXIT_TERMINATED = 143
_UNWRITABLE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS, errno.EBADF})
"""Why a file, such as the one that standard output is redirected to, cannot be written."""
_UNUSABLE = frozenset({errno.EACCES, errno.EPERM, errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.ELOOP})
"""Why a file that the user has named cannot be opened."""
_NUMBER = re.compile(r"\[Errno \d+\] ")


class CommandError(click.ClickException):
    """A one-line user error that says what to change; exit code 2."""

    exit_code = EXIT_WRONG

    def show(self, file: object = None) -> None:  # noqa: ARG002
        """Print the message on standard error."""
        click.echo(f"stilltrue: {_NUMBER.sub('', one_line(self.format_message()))}", err=True)


def one_line(text: str) -> str:
    """``text`` on one line."""
    return " ".join(text.split())


def run_command(command: click.Command, arguments: Sequence[str] | None = None) -> int:
    """Run ``command`` with ``arguments`` (None: this process's) and return its exit code."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # names may contain characters that the encoding lacks
    try:
        code = _run(command, arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        _discard_output()
        return EXIT_PIPE
    except OSError as error:
        if error.errno in _UNWRITABLE:
            click.echo(f"stilltrue: cannot write {error.filename or 'the output'}: {error.strerror}", err=True)
        elif error.errno == errno.ENOENT and not error.filename and _without_directory():
            click.echo("stilltrue: the current directory no longer exists: change to another one (cd)", err=True)
        elif error.errno in _UNUSABLE and error.filename:
            click.echo(f"stilltrue: {one_line(os.fsdecode(error.filename))}: {error.strerror}", err=True)
        else:
            return _crashed()
        _discard_output()
        return EXIT_WRONG
    except Exception:  # noqa: BLE001 - the interpreter would exit with 1
        return _crashed()
    return code


def _run(command: click.Command, arguments: Sequence[str] | None) -> int:
    try:
        code = command.main(arguments, standalone_mode=False, prog_name="stilltrue")
    except SystemExit as end:
        if type(sys.stdout).__name__.endswith("PacifyFlushWrapper"):
            raise BrokenPipeError from None  # click would exit with 1 on a closed pipe
        if not isinstance(end.code, int | None):
            raise
        return end.code or 0
    except (click.exceptions.Exit, click.exceptions.Abort, click.ClickException, KeyboardInterrupt) as end:
        return _report(end)
    return code if isinstance(code, int) else 0


def _report(end: BaseException) -> int:
    """Print the error that ended the command, if there is one, and return the exit code."""
    match end:
        case click.exceptions.Exit():
            return end.exit_code
        case click.UsageError():
            _show_usage(_with_near_names(end) if isinstance(end, click.NoSuchOption) else end)
            return EXIT_WRONG
        case click.ClickException():
            end.show()
            return end.exit_code
        case _:
            return EXIT_INTERRUPTED


def _without_directory() -> bool:
    """Whether the current directory was removed, so that no relative path means anything."""
    try:
        os.getcwd()  # noqa: PTH109
    except FileNotFoundError:
        return True
    return False


def _crashed() -> int:
    traceback.print_exc()
    return EXIT_WRONG


def _discard_output() -> None:
    """Send what is still buffered nowhere: otherwise the interpreter reports an error at exit."""
    with contextlib.suppress(io.UnsupportedOperation):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _with_near_names(error: click.NoSuchOption) -> click.NoSuchOption:
    """The error without the suggestions that are only near because both names begin with two dashes."""
    bare = {name.lstrip("-"): name for name in error.possibilities or ()}
    near = [bare[name] for name in get_close_matches(error.option_name.lstrip("-"), bare)]
    return click.NoSuchOption(error.option_name, error.message, possibilities=near, ctx=error.ctx)


def _show_usage(error: click.UsageError) -> None:
    path = error.ctx.command_path if error.ctx is not None else "stilltrue"
    text = one_line(error.format_message()).replace("is not a valid integer range", "is not a valid integer")
    if isinstance(error, click.MissingParameter) and (example := _example_of(error.ctx)):
        text = f"{text.rstrip('.')}, as in: {example}"
    click.echo(f"{path}: {text} (see {path} --help)", err=True)


def _example_of(context: click.Context | None) -> str:
    """The first example in the help of the context's command; empty without one."""
    help_texts = (context.command.help, context.command.epilog) if context is not None else ()
    lines = (line.strip() for text in help_texts if text for line in text.splitlines())
    return next((line for line in lines if context is not None and line.startswith(f"{context.command_path} ")), "")
