"""``stilltrue evaluate``: evaluates a predicate on snapshot documents, offline."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn

from detector.commands.evaluation.offline import OfflineEvaluator, Question
from detector.commands.evaluation.offline import failures as failures_of
from detector.commands.evaluation.parallel_evaluation import (
    Chunk,
    UnknownKeys,
    chunked,
    evaluate_chunks,
    evaluate_files,
    size_of,
)
from detector.commands.options import completed_names as names
from detector.commands.options.finite_range import FiniteRange
from detector.commands.shared.input import blocks_of, text_of
from detector.commands.shared.output import Output, output_option, print_names, printable_yaml
from detector.commands.shared.render import EXIT_CODES, print_verdict
from detector.commands.shared.run import EXIT_WRONG, CommandError
from detector.core.document.reader import SEVERAL_TEXTS, DocumentError
from detector.core.registry import PluginError, UnknownPredicateError
from detector.core.selector import parse_selector
from detector.core.verdict import write_verdict
from detector.drawing.draw import Format
from detector.drawing.draw import draw as draw_picture
from stilltrue.model import Holds, Verdict

SHOWN_BYTES_MIN = 4_000_000
"""Below this size no progress bar is shown."""

EPILOG = """\b
Examples:
  stilltrue evaluate deadlock snapshot.json
  stilltrue show 17 --format json | stilltrue evaluate termination -
  stilltrue evaluate token-lost --set fact=lease --set expected=3 snapshot.json
  stilltrue evaluate deadlock --jsonl snapshots.jsonl > verdicts.jsonl
  stilltrue evaluate deadlock --draw svg snapshot.json > picture.svg

\b
Exit codes:
  0  the property holds (of several files or scopes: in all); with --jsonl: every line was evaluated
  1  it does not hold (in some)
  2  wrong usage, invalid input, or a failing predicate
  3  undetermined (in some, and false in none)
"""


def _settings(_context: click.Context, _parameter: click.Parameter, words: tuple[str, ...]) -> dict[str, Any]:
    """Parse ``key=value``; the value is JSON if it parses as such, else a string."""
    settings: dict[str, Any] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key.isidentifier():
            raise click.BadParameter(f"{word!r} is not a valid KEY=VALUE; for example fact=lease")
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
@click.argument("predicate", shell_complete=names.predicates)
@click.argument("files", metavar="FILE...", nargs=-1, required=True, shell_complete=names.files)
@click.option(
    "--jsonl",
    is_flag=True,
    envvar="STILLTRUE_JSONL",
    show_envvar=True,
    help="Each line of a FILE is a document; print one verdict per line (one for each --scope), in order.",
)
@output_option
@click.option(
    "--set",
    "settings",
    metavar="KEY=VALUE",
    multiple=True,
    callback=_settings,
    envvar="STILLTRUE_SET",
    show_envvar=True,
    help="A setting of the predicate; repeatable.",
)
@click.option(
    "--scope",
    "scopes",
    metavar="LABEL=VALUE[,...]",
    multiple=True,
    callback=_scopes,
    envvar="STILLTRUE_SCOPE",
    show_envvar=True,
    help="Only the processes with these labels; repeatable, with one verdict for each.",
)
@click.option(
    "--seconds-max",
    type=FiniteRange(min=0),
    default=60.0,
    show_default=True,
    envvar="STILLTRUE_SECONDS_MAX",
    show_envvar=True,
    help="Time limit for the predicate on one document; 0: no limit.",
)
@click.option(
    "--draw",
    type=click.Choice([form.value for form in Format]),
    envvar="STILLTRUE_DRAW",
    show_envvar=True,
    help="Print the wait-for graph in this format instead, for one FILE and at most one --scope.",
)
def evaluate(
    predicate: str,
    files: tuple[str, ...],
    *,
    jsonl: bool,
    output: Output,
    settings: dict[str, Any],
    scopes: dict[str, dict[str, str]],
    seconds_max: float,
    draw: str | None,
) -> None:
    """Evaluate PREDICATE on snapshot documents; a FILE of - is standard input."""
    if draw and (jsonl or output is not Output.TEXT or len(files) > 1 or len(scopes) > 1):
        raise click.UsageError("--draw takes one FILE and at most one --scope, without --jsonl or -o")
    question = Question(predicate=predicate, settings=settings, scopes=scopes, seconds_max=seconds_max)
    try:
        evaluator = question.prepare()
        if draw:
            code = _drawn(evaluator, files[0], Format(draw))
        else:
            code = _batch(question, evaluator, files) if jsonl else _single(question, evaluator, files, output=output)
        sys.stdout.flush()
    except DocumentError as error:
        raise CommandError(f"{error}{_hint(error, files, jsonl=jsonl)}") from None
    except PluginError as error:
        raise CommandError(str(error)) from None
    except UnknownPredicateError as error:
        raise CommandError(str(error.args[0])) from None
    except BrokenProcessPool:
        raise CommandError("a worker process died (out of memory?)") from None
    click.get_current_context().exit(code)


def _hint(error: DocumentError, files: tuple[str, ...], *, jsonl: bool) -> str:
    """How to evaluate files that are not one document each; empty if ``error`` does not look like that."""
    if not jsonl and error.text == SEVERAL_TEXTS:
        return "; if each line is a document, add --jsonl"
    if any(Path(file).is_dir() or file.endswith(".parquet") for file in files):
        return "; an archive is evaluated by 'stilltrue analyze'"
    return ""


def _single(question: Question, evaluator: OfflineEvaluator, files: tuple[str, ...], *, output: Output) -> int:
    """Evaluate each file as one document; returns the exit code for all."""
    answers: list[Holds] = []
    failures: list[str] = []
    unknown_keys = UnknownKeys()
    size = sum(map(size_of, files))
    with _progress(shown=size >= SHOWN_BYTES_MIN) as progress:
        task = progress.add_task("evaluating", total=size if len(files) > 1 else None)
        for file, done in zip(files, evaluate_files(question, evaluator, files), strict=True):
            for key in done.unknown_keys:
                unknown_keys(key)
            if done.error is not None:
                raise done.error
            failures += failures_of(done.verdicts, file)
            for verdict in done.verdicts:
                titles = [file] * (len(files) > 1) + [verdict.snapshot.scope] * (len(done.verdicts) > 1)
                _print(verdict, " ".join(titles), output)
            answers += [verdict.holds for verdict in done.verdicts]
            progress.update(task, advance=size_of(file))
    if failures:
        raise CommandError(failures[0])
    _warn(*unknown_keys.first)
    return EXIT_CODES[next((worst for worst in (Holds.FALSE, Holds.UNDETERMINED) if worst in answers), Holds.TRUE)]


def _print(verdict: Verdict, title: str, output: Output) -> None:
    match output:
        case Output.JSON:
            click.echo(json.dumps(write_verdict(verdict)))
        case Output.YAML:
            click.echo(f"---\n{printable_yaml(write_verdict(verdict))}", nl=False)
        case Output.NAME:
            print_names(verdict.core)
        case _:
            print_verdict(verdict, title=title)


def _drawn(evaluator: OfflineEvaluator, file: str, form: Format) -> int:
    """Draw one document; returns the exit code of its answer."""
    unknown_keys = UnknownKeys()
    _, (view,) = evaluator.views(text_of(file), file=file, on_unknown_key=unknown_keys)
    verdict = evaluator.verdict(view)
    for failure in failures_of([verdict], file):
        raise CommandError(failure)
    click.echo(draw_picture(view, verdict, form), nl=False)
    _warn(*unknown_keys.first)
    return EXIT_CODES[verdict.holds]


def _batch(question: Question, evaluator: OfflineEvaluator, files: tuple[str, ...]) -> int:
    """Evaluate each line as one document; returns 0 when every line was evaluated, else 2."""
    code = 0
    unknown_keys = UnknownKeys()
    with _progress() as progress:
        task = progress.add_task("evaluating", total=None if "-" in files else sum(map(size_of, files)))
        for done in evaluate_chunks(question, evaluator, _chunks(files)):
            if done.verdicts:
                click.echo("\n".join(done.verdicts))
            for key in done.unknown_keys:
                unknown_keys(key)
            for failure in done.failures:
                code = EXIT_WRONG
                _warn(failure)
            if done.error is not None:
                raise done.error
            progress.update(task, advance=done.characters)
    _warn(*unknown_keys.first)
    return code


def _progress(*, shown: bool = True) -> Progress:
    """A progress bar on standard error, shown on a terminal only."""
    return Progress(
        SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn(),
        console=Console(stderr=True), transient=True, disable=not (shown and sys.stderr.isatty()),
        redirect_stdout=sys.stdout.isatty(),
    )  # fmt: skip


def _warn(*lines: object) -> None:
    for line in lines:
        click.echo(f"stilltrue: {line}", err=True)


def _chunks(files: tuple[str, ...]) -> Iterator[Chunk]:
    for file in files:
        yield from chunked(file, blocks_of(file))
