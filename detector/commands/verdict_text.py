"""A verdict as text for people; colours only on a terminal."""

from __future__ import annotations

import click
from rich.console import Console
from rich.markup import escape

from detector.core.times import write_time
from detector.predicates.explain import shortened
from stilltrue.model import Holds, Verdict

COLOURS = {Holds.TRUE: "bold red", Holds.FALSE: "bold green", Holds.UNDETERMINED: "bold yellow"}


def print_verdict(verdict: Verdict, *, title: str = "", console: Console | None = None) -> None:
    """Print the answer, then the evidence, then what was missing."""
    console = console or Console(highlight=False, soft_wrap=True)
    with console.capture() as text:  # rich would end the program when the reader goes away, with another answer's exit code
        _print(verdict, f"{title}: " if title else "", console)
    click.echo(text.get(), nl=False)


def _print(verdict: Verdict, head: str, console: Console) -> None:
    colour = COLOURS[verdict.holds]
    word = verdict.holds.value.upper()
    console.print(f"{escape(head + verdict.predicate)}: [{colour}]{word}[/]  {escape(verdict.witness.text)}")
    for line in _lines(verdict):
        console.print(f"  {line}", markup=False)


def _lines(verdict: Verdict) -> list[str]:
    lists = {
        "core": verdict.core,
        "behind": verdict.behind,
        "missing": verdict.missing,
        "decisive": verdict.decisive,
        "victims": verdict.victims,
    }
    lines = list(verdict.explanation)
    lines += [f"{word} ({len(names)}): {', '.join(shortened(names))}" for word, names in lists.items() if names]
    if verdict.until is not None:
        lines.append(f"until {write_time(verdict.until)}, when the first deadline can move it")
    return lines
