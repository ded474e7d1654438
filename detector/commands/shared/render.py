"""Prints verdicts and tables: coloured on a terminal, plain in a pipe."""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import click
from rich import markup
from rich.console import Console
from rich.table import Table

from detector.core.counting import counted
from detector.core.times import duration, local_time
from detector.ops.text import printable, printable_json
from stilltrue.model import Holds, Verdict

EXIT_CODES = {Holds.TRUE: 0, Holds.FALSE: 1, Holds.UNDETERMINED: 3}
_STYLES = {Holds.TRUE: "bold red", Holds.FALSE: "green", Holds.UNDETERMINED: "yellow"}
_GOOD_NEWS = {"termination", "quiescence", "phase-ended"}
_NAMES_MAX = 20
PIPE_WIDTH = 1_000_000


def escape(text: str) -> str:
    """``text`` from outside, fit for ``console().print``: neither markup nor anything that steers a terminal."""
    return markup.escape(printable(text))


def console(*, wide: bool = False) -> Console:
    """Standard output; in a pipe, and where ``wide``, each row of a table is one line, however long."""
    return Console(highlight=False, soft_wrap=True, width=PIPE_WIDTH if wide or not sys.stdout.isatty() else None)


def print_json(value: Any) -> None:
    """Print ``value`` as one line of JSON."""
    sys.stdout.write(printable_json(json.dumps(value, ensure_ascii=False)) + "\n")


def holds_text(verdict: Verdict) -> str:
    """The answer in words; a FALSE speaks of the moment when the snapshot began."""
    match verdict.holds:
        case Holds.TRUE:
            return "TRUE"
        case Holds.FALSE:
            begun = verdict.snapshot.begun
            return "not when the snapshot began" if begun is None else f"not as of {local_time(begun)}"
        case Holds.UNDETERMINED:
            return "undetermined"


def styled(holds: Holds, predicate: str, text: str) -> str:
    """``text`` in the colour that fits the answer."""
    style = "bold green" if holds is Holds.TRUE and predicate in _GOOD_NEWS else _STYLES[holds]
    return f"[{style}]{escape(text)}[/]"


def print_verdict(verdict: Verdict, *, title: str = "") -> None:
    """Print a verdict with its evidence, under ``title`` when it is one of several."""
    out = console()
    with out.capture() as text:  # rich exits on a closed pipe, with a code that would read as an answer
        _print(verdict, f"{title}: " if title else "", out)
    click.echo(text.get(), nl=False)


def _print(verdict: Verdict, head: str, out: Console) -> None:
    answer = styled(verdict.holds, verdict.predicate, holds_text(verdict))
    out.print(f"{escape(head + verdict.predicate)}: {answer}")
    if verdict.witness.text:
        out.print(f"  {escape(verdict.witness.text)}")
    for sentence in verdict.explanation:
        out.print(f"  - {escape(sentence)}")
    for word, names in _remaining_parts(verdict):
        out.print(f"  {word} ({len(names)}): {escape(listed(names))}")
    if verdict.until is not None:
        out.print(f"  until {local_time(verdict.until)} (when a deadline expires)")
    if verdict.assumptions:
        out.print(f"  [dim]assuming that {escape('; '.join(verdict.assumptions))}[/]")
    if verdict.snapshot.id is not None:
        out.print(f"  [dim]{escape(_snapshot_line(verdict))}[/]")


def _remaining_parts(verdict: Verdict) -> list[tuple[str, Sequence[str]]]:
    """The parts of a verdict that its evidence has not named yet."""
    suggested = " ".join(sentence for sentence in verdict.explanation if sentence.startswith("aborting "))
    parts: list[tuple[str, Sequence[str], bool]] = [
        ("core", verdict.core, set(verdict.core) != set(verdict.witness.parties)),
        ("behind it", verdict.behind, True),
        ("missing", verdict.missing, True),
        ("depends on", verdict.decisive, verdict.decisive != verdict.missing),
        ("aborting these would free all", verdict.victims, not any(name in suggested for name in verdict.victims)),
    ]
    return [(word, names) for word, names, new in parts if names and new]


def _snapshot_line(verdict: Verdict) -> str:
    ref = verdict.snapshot
    parts = [f"snapshot {ref.id}", f"scope {ref.scope}", counted(ref.members, "member")]
    if ref.begun is not None and ref.ended is not None:
        parts.append(f"began {local_time(ref.begun)}, took {duration(ref.ended - ref.begun)}")
    return ", ".join(parts)


def listed(names: Sequence[str], most: int = _NAMES_MAX) -> str:
    """Names separated by commas; those beyond ``most`` are counted."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def table(
    columns: Iterable[str], rows: Iterable[Sequence[str]], *, flexible: Collection[str] = (), whole: Collection[str] = ()
) -> Table:
    """A borderless table; cells may contain rich markup.

    Where it is too wide, the ``flexible`` columns wrap between words; a word that does not fit is cut, and ends in an ellipsis.
    In the ``whole`` columns it goes on in the next line instead.
    """
    made = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for column in columns:
        made.add_column(column, overflow="fold" if column in whole else "ellipsis", no_wrap=column not in {*flexible, *whole})
    for row in rows:
        made.add_row(*row)
    return made
