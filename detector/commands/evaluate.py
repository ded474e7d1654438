"""The command `stilltrue evaluate`: a predicate's verdict on snapshot documents, offline."""

from __future__ import annotations

import gc
import io
import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TextIO

import click
from rich.console import Console
from rich.progress import Progress

from detector.commands.asking import Asking, Question, complaints
from detector.commands.batch import Chunk, PassedOver, chunked, evaluated
from detector.commands.render import EXIT_CODES, print_verdict
from detector.commands.run import EXIT_WRONG, CommandError
from detector.core.document import DocumentError
from detector.core.registry import PluginError, UnknownPredicateError
from detector.core.scope import parse_selector
from detector.core.verdict import write_verdict
from stilltrue.model import Holds

EPILOG = """\b
Examples:
  stilltrue evaluate deadlock snapshot.json
  stilltrue show 17 --format json | stilltrue evaluate termination -
  stilltrue evaluate token-lost --set fact=lease --set expected=3 snapshot.json
  stilltrue evaluate deadlock --jsonl snapshots.jsonl > verdicts.jsonl

\b
Exit codes:
  0  the property holds (of several files or scopes: in all); with --jsonl: every line was evaluated
  1  it does not hold (in some)
  2  wrong usage or bad input, or the predicate failed
  3  undetermined (in some, and false in none)
"""


def _settings(_context: click.Context, _parameter: click.Parameter, words: tuple[str, ...]) -> dict[str, Any]:
    """``key=value`` words; a value that is JSON is taken as such, any other as text."""
    settings: dict[str, Any] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key.isidentifier():
            raise click.BadParameter(f"{word!r} is not key=value")
        try:
            settings[key] = json.loads(value)
        except ValueError:
            settings[key] = value
    return settings


def _scopes(_context: click.Context, _parameter: click.Parameter, words: tuple[str, ...]) -> dict[str, dict[str, str]]:
    try:
        return {word: parse_selector(word) for word in words}
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@click.command(epilog=EPILOG)
@click.argument("predicate")
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@click.option(
    "--jsonl",
    is_flag=True,
    envvar="STILLTRUE_JSONL",
    show_envvar=True,
    help="Each line of a FILE is a document; write one verdict a line (one for each --scope), in order.",
)
@click.option(
    "--json", "as_json", is_flag=True, envvar="STILLTRUE_JSON", show_envvar=True, help="Write verdicts as JSON, one a line."
)
@click.option(
    "--set",
    "settings",
    metavar="KEY=VALUE",
    multiple=True,
    callback=_settings,
    envvar="STILLTRUE_SET",
    show_envvar=True,
    help="A setting of the predicate; may be given again.",
)
@click.option(
    "--scope",
    "scopes",
    metavar="LABEL=VALUE[,...]",
    multiple=True,
    callback=_scopes,
    envvar="STILLTRUE_SCOPE",
    show_envvar=True,
    help="Only the processes that bear these labels; may be given again, for a verdict each.",
)
@click.option(
    "--seconds-max",
    type=click.FloatRange(min=0),
    default=60.0,
    show_default=True,
    envvar="STILLTRUE_SECONDS_MAX",
    show_envvar=True,
    help="How long the predicate may take over one document; 0 is no limit.",
)
def evaluate(
    predicate: str,
    files: tuple[str, ...],
    *,
    jsonl: bool,
    as_json: bool,
    settings: dict[str, Any],
    scopes: dict[str, dict[str, str]],
    seconds_max: float,
) -> None:
    """Evaluate PREDICATE on snapshot documents; a FILE of - is standard input."""
    question = Question(predicate=predicate, settings=settings, scopes=scopes, seconds_max=seconds_max)
    try:
        asking = question.put()
        code = _batch(question, asking, files) if jsonl else _single(asking, files, as_json=as_json)
        sys.stdout.flush()
    except (DocumentError, PluginError) as error:
        raise CommandError(str(error)) from None
    except UnknownPredicateError as error:
        raise CommandError(str(error.args[0])) from None
    click.get_current_context().exit(code)


def _single(asking: Asking, files: tuple[str, ...], *, as_json: bool) -> int:
    """Each file is one document; the exit code of them all."""
    answers: list[Holds] = []
    failures: list[str] = []
    passed_over = PassedOver()
    for file in files:
        with _opened(file) as stream:
            text = "".join(_each(stream, file))
        gc.disable()  # a document is millions of small values and no circle: looking for circles takes half the time
        try:
            _, verdicts = asking.verdicts(text, file=file, told=passed_over)
        finally:
            gc.enable()
        failures += complaints(verdicts, file)
        for verdict in verdicts:
            titles = [file] * (len(files) > 1) + [verdict.snapshot.scope] * (len(verdicts) > 1)
            if as_json:
                click.echo(json.dumps(write_verdict(verdict)))
            else:
                print_verdict(verdict, title=" ".join(titles))
        answers += [verdict.holds for verdict in verdicts]
    if failures:
        raise CommandError(failures[0])
    _warn(*passed_over.first)
    return EXIT_CODES[next((worst for worst in (Holds.FALSE, Holds.UNDETERMINED) if worst in answers), Holds.TRUE)]


def _batch(question: Question, asking: Asking, files: tuple[str, ...]) -> int:
    """Each line is one document; 0 when every line was evaluated, else 2."""
    code = 0
    passed_over = PassedOver()
    with Progress(console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as progress:
        task = progress.add_task("evaluating", total=_characters(files))
        for done in evaluated(question, asking, _chunks(files)):
            if done.verdicts:
                click.echo("\n".join(done.verdicts))
            for key in done.passed_over:
                passed_over(key)
            for complaint in done.complaints:
                code = EXIT_WRONG
                _warn(complaint)
            if done.error is not None:
                raise done.error
            progress.update(task, advance=done.characters)
    _warn(*passed_over.first)
    return code


def _warn(*complaints: object) -> None:
    for complaint in complaints:
        click.echo(f"stilltrue: {complaint}", err=True)


def _chunks(files: tuple[str, ...]) -> Iterator[Chunk]:
    for file in files:
        with _opened(file) as stream:
            yield from chunked(file, _each(stream, file))


def _characters(files: tuple[str, ...]) -> int | None:
    """About how much there is to read, for the bar; None when standard input is among the files."""
    paths = [Path(file) for file in files]
    return sum(path.stat().st_size for path in paths) if all(path.is_file() for path in paths) else None


def _opened(file: str) -> TextIO:
    if file == "-":
        return io.TextIOWrapper(sys.stdin.buffer, encoding="utf-8-sig")
    try:
        return Path(file).open(encoding="utf-8-sig")
    except OSError as error:
        raise DocumentError(error.strerror or str(error), file=file) from None


def _each(stream: Iterable[str], file: str) -> Iterator[str]:
    """The lines of ``stream``; what cannot be read is the file's fault."""
    number = 0
    try:
        for line in stream:
            number += 1
            yield line
    except UnicodeDecodeError:
        raise DocumentError("is not UTF-8", file=file, line=number + 1) from None
    except OSError as error:
        raise DocumentError(error.strerror or str(error), file=file) from None
