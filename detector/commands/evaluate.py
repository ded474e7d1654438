"""The command `stilltrue evaluate`: a predicate's verdict on snapshot documents, offline."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from concurrent.futures.process import BrokenProcessPool
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn

from detector.commands.shared.input import blocks_of, text_of
from detector.commands.shared.offline import OfflineEvaluator, Question, complaints
from detector.commands.shared.parallel import Chunk, UnknownKeys, chunked, evaluate_chunks, evaluate_files, size_of
from detector.commands.shared.render import EXIT_CODES, print_verdict
from detector.commands.shared.run import EXIT_WRONG, CommandError
from detector.core.document.reader import DocumentError
from detector.core.registry import PluginError, UnknownPredicateError
from detector.core.scope import parse_selector
from detector.core.verdict import write_verdict
from detector.drawing.draw import Format
from detector.drawing.draw import draw as draw_picture
from stilltrue.model import Holds

SHOWN_BYTES_MIN = 4_000_000
"""Of less nobody waits for the end long enough to want to see how far it is."""

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
@click.option(
    "--draw",
    type=click.Choice([form.value for form in Format]),
    envvar="STILLTRUE_DRAW",
    show_envvar=True,
    help="Write a picture of who waits for whom instead: of one FILE, and one --scope at most.",
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
    draw: str | None,
) -> None:
    """Evaluate PREDICATE on snapshot documents; a FILE of - is standard input."""
    if draw and (jsonl or as_json or len(files) > 1 or len(scopes) > 1):
        raise click.UsageError("--draw is for one FILE and one --scope at most, without --jsonl and --json")
    question = Question(predicate=predicate, settings=settings, scopes=scopes, seconds_max=seconds_max)
    try:
        evaluator = question.prepare()
        if draw:
            code = _drawn(evaluator, files[0], Format(draw))
        else:
            code = _batch(question, evaluator, files) if jsonl else _single(question, evaluator, files, as_json=as_json)
        sys.stdout.flush()
    except (DocumentError, PluginError) as error:
        raise CommandError(str(error)) from None
    except UnknownPredicateError as error:
        raise CommandError(str(error.args[0])) from None
    except BrokenProcessPool:
        raise CommandError("a process that evaluated ended before its time (out of memory?)") from None
    click.get_current_context().exit(code)


def _single(question: Question, evaluator: OfflineEvaluator, files: tuple[str, ...], *, as_json: bool) -> int:
    """Each file is one document; the exit code of them all."""
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
            failures += complaints(done.verdicts, file)
            for verdict in done.verdicts:
                titles = [file] * (len(files) > 1) + [verdict.snapshot.scope] * (len(done.verdicts) > 1)
                if as_json:
                    click.echo(json.dumps(write_verdict(verdict)))
                else:
                    print_verdict(verdict, title=" ".join(titles))
            answers += [verdict.holds for verdict in done.verdicts]
            progress.update(task, advance=size_of(file))
    if failures:
        raise CommandError(failures[0])
    _warn(*unknown_keys.first)
    return EXIT_CODES[next((worst for worst in (Holds.FALSE, Holds.UNDETERMINED) if worst in answers), Holds.TRUE)]


def _drawn(evaluator: OfflineEvaluator, file: str, form: Format) -> int:
    """The picture of one document; its exit code is the answer's."""
    unknown_keys = UnknownKeys()
    _, (view,) = evaluator.views(text_of(file), file=file, on_unknown_key=unknown_keys)
    verdict = evaluator.verdict(view)
    for complaint in complaints([verdict], file):
        raise CommandError(complaint)
    click.echo(draw_picture(view, verdict, form), nl=False)
    _warn(*unknown_keys.first)
    return EXIT_CODES[verdict.holds]


def _batch(question: Question, evaluator: OfflineEvaluator, files: tuple[str, ...]) -> int:
    """Each line is one document; 0 when every line was evaluated, else 2."""
    code = 0
    unknown_keys = UnknownKeys()
    with _progress() as progress:
        task = progress.add_task("evaluating", total=None if "-" in files else sum(map(size_of, files)))
        for done in evaluate_chunks(question, evaluator, _chunks(files)):
            if done.verdicts:
                click.echo("\n".join(done.verdicts))
            for key in done.unknown_keys:
                unknown_keys(key)
            for complaint in done.complaints:
                code = EXIT_WRONG
                _warn(complaint)
            if done.error is not None:
                raise done.error
            progress.update(task, advance=done.characters)
    _warn(*unknown_keys.first)
    return code


def _progress(*, shown: bool = True) -> Progress:
    """A bar on standard error, where somebody sees it."""
    return Progress(
        SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn(),
        console=Console(stderr=True), transient=True, disable=not (shown and sys.stderr.isatty()),
        redirect_stdout=sys.stdout.isatty(),
    )  # fmt: skip


def _warn(*complaints: object) -> None:
    for complaint in complaints:
        click.echo(f"stilltrue: {complaint}", err=True)


def _chunks(files: tuple[str, ...]) -> Iterator[Chunk]:
    for file in files:
        yield from chunked(file, blocks_of(file))
