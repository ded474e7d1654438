"""The command `stilltrue evaluate`: a predicate's verdict on snapshot documents, offline."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NoReturn, TextIO

import click

from detector.commands.verdict_text import print_verdict
from detector.core.document import DocumentError, parse_document
from detector.core.predicate import Predicate
from detector.core.registry import PluginError, UnknownPredicateError, ask, find_predicate
from detector.core.verdict import write_verdict
from stilltrue.model import Holds, Verdict

EXIT_CODES = {Holds.TRUE: 0, Holds.FALSE: 1, Holds.UNDETERMINED: 3}
EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130

EPILOG = """\b
Examples:
  stilltrue evaluate deadlock snapshot.json
  stilltrue show 17 --format json | stilltrue evaluate termination -
  stilltrue evaluate deadlock --jsonl snapshots.jsonl > verdicts.jsonl

Exit code: 0 the property holds (of several files: in all), 1 it does not (in some), 3 undetermined (in some, and false in
none), 2 bad input. With --jsonl: 0 when every line was evaluated.
"""


@click.command(epilog=EPILOG)
@click.argument("predicate")
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@click.option(
    "--jsonl",
    is_flag=True,
    envvar="STILLTRUE_JSONL",
    show_envvar=True,
    help="Each line of a FILE is a document; write one verdict a line, in order.",
)
@click.option(
    "--json", "as_json", is_flag=True, envvar="STILLTRUE_JSON", show_envvar=True, help="Write verdicts as JSON, one a line."
)
def evaluate(predicate: str, files: tuple[str, ...], *, jsonl: bool, as_json: bool) -> None:
    """Evaluate PREDICATE on snapshot documents; a FILE of - is standard input."""
    try:
        code = _evaluate(predicate, files, jsonl=jsonl, as_json=as_json)
        sys.stdout.flush()
    except (DocumentError, PluginError, UnknownPredicateError) as error:
        _fail(error.args[0] if isinstance(error, UnknownPredicateError) else str(error))
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = EXIT_BAD_INPUT
    except KeyboardInterrupt:
        code = EXIT_INTERRUPTED
    sys.exit(code)


def _evaluate(name: str, files: tuple[str, ...], *, jsonl: bool, as_json: bool) -> int:
    predicate = find_predicate(name)
    if jsonl:
        for file in files:
            for line in _lines(predicate, file):
                click.echo(line)
        return 0
    return _exit_code([_one(predicate, file, as_json=as_json, titled=len(files) > 1) for file in files])


def _one(predicate: Predicate, file: str, *, as_json: bool, titled: bool) -> Holds:
    with _opened(file) as stream:
        _, snapshot = parse_document(_read(stream, file), file=file)
    verdict = ask(predicate, snapshot)
    if as_json:
        click.echo(json.dumps(write_verdict(verdict)))
    else:
        print_verdict(verdict, title=file if titled else "")
    return verdict.holds


def _lines(predicate: Predicate, file: str) -> Iterator[str]:
    with _opened(file) as stream:
        for number, line in enumerate(_each(stream, file), start=1):
            if line.strip():
                raw, snapshot = parse_document(line, file=file, first_line=number)
                yield json.dumps(with_id(ask(predicate, snapshot), raw))


def with_id(verdict: Verdict, raw: dict[str, Any]) -> dict[str, Any]:
    """The verdict as JSON, with the document's own ``id`` after it if it has one."""
    written = write_verdict(verdict)
    return written | {"id": raw["id"]} if "id" in raw else written


def _exit_code(answers: list[Holds]) -> int:
    for worst in (Holds.FALSE, Holds.UNDETERMINED):
        if worst in answers:
            return EXIT_CODES[worst]
    return EXIT_CODES[Holds.TRUE]


def _opened(file: str) -> TextIO:
    if file == "-":
        return open(0, encoding="utf-8-sig", closefd=False)
    try:
        return Path(file).open(encoding="utf-8-sig")
    except OSError as error:
        raise DocumentError(error.strerror or str(error), file=file) from None


def _read(stream: TextIO, file: str) -> str:
    return "".join(_each(stream, file))


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


def _fail(text: str) -> NoReturn:
    click.echo(f"stilltrue: {text}", err=True)
    sys.exit(EXIT_BAD_INPUT)
