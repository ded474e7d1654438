"""How answers look on a terminal and in a pipe: verdicts, times, tables; colours only where somebody sees them."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from detector.core.times import write_time
from stilltrue.model import Holds, Verdict

EXIT_CODES = {Holds.TRUE: 0, Holds.FALSE: 1, Holds.UNDETERMINED: 3}
_STYLES = {Holds.TRUE: "bold red", Holds.FALSE: "green", Holds.UNDETERMINED: "yellow"}
_GOOD_NEWS = {"termination", "quiescence", "phase-ended"}
_NAMES_MAX = 20


def console() -> Console:
    """Where answers go; wide enough in a pipe that nothing is cut off there."""
    return Console(highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else 1000)


def print_json(value: Any) -> None:
    """One JSON text, as one line."""
    sys.stdout.write(json.dumps(value, ensure_ascii=False) + "\n")


def moment(seconds: float | None) -> str:
    """The time of day here, with the date where it is not today; in UTC, where no clock here can show it (the year 9999)."""
    if seconds is None:
        return "-"
    try:
        then = datetime.fromtimestamp(seconds).astimezone()
    except (OverflowError, ValueError, OSError):
        return write_time(seconds)
    return then.strftime("%H:%M:%S" if then.date() == datetime.now().astimezone().date() else "%Y-%m-%d %H:%M:%S")


def duration(seconds: float | None) -> str:
    """A length of time: ``85 ms``, ``3.2 s``, ``4 min 5 s``, ``3 h 12 min``, ``2 d 4 h``."""
    if seconds is None:
        return "-"
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours < 24 else f"{hours // 24} d {hours % 24} h"


def holds_text(verdict: Verdict) -> str:
    """The answer in words: a FALSE is about the moment when the snapshot began."""
    match verdict.holds:
        case Holds.TRUE:
            return "TRUE"
        case Holds.FALSE:
            begun = verdict.snapshot.begun
            return "not when the snapshot began" if begun is None else f"not as of {moment(begun)}"
        case Holds.UNDETERMINED:
            return "undetermined"


def styled(holds: Holds, predicate: str, text: str) -> str:
    """``text`` in the colour of the answer."""
    style = "bold green" if holds is Holds.TRUE and predicate in _GOOD_NEWS else _STYLES[holds]
    return f"[{style}]{escape(text)}[/]"


def print_verdict(verdict: Verdict, *, title: str = "") -> None:
    """A verdict with its evidence; ``title`` says which of several it is."""
    out = console()
    with out.capture() as text:  # rich would end the program when the reader goes away, with another answer's exit code
        _print(verdict, f"{title}: " if title else "", out)
    click.echo(text.get(), nl=False)


def _print(verdict: Verdict, head: str, out: Console) -> None:
    answer = styled(verdict.holds, verdict.predicate, holds_text(verdict))
    out.print(f"{escape(head + verdict.predicate)}: {answer}")
    if verdict.witness.text:
        out.print(f"  {escape(verdict.witness.text)}")
    for sentence in verdict.explanation:
        out.print(f"  - {escape(sentence)}")
    for word, names in _untold(verdict):
        out.print(f"  {word} ({len(names)}): {escape(listed(names))}")
    if verdict.until is not None:
        out.print(f"  until {moment(verdict.until)} (a deadline ends it then)")
    if verdict.snapshot.id is not None:
        out.print(f"  [dim]{escape(_about(verdict))}[/]")


def _untold(verdict: Verdict) -> list[tuple[str, Sequence[str]]]:
    """What the evidence has not said already: nobody reads the same names twice."""
    told = " ".join(verdict.explanation[-1:])
    parts: list[tuple[str, Sequence[str], bool]] = [
        ("core", verdict.core, set(verdict.core) != set(verdict.witness.parties)),
        ("behind it", verdict.behind, True),
        ("missing", verdict.missing, True),
        ("it hangs on", verdict.decisive, verdict.decisive != verdict.missing),
        ("giving up would free all", verdict.victims, not any(name in told for name in verdict.victims)),
    ]
    return [(word, names) for word, names, news in parts if names and news]


def _about(verdict: Verdict) -> str:
    ref = verdict.snapshot
    parts = [f"snapshot {ref.id}", f"scope {ref.scope}", f"{ref.members} members"]
    if ref.begun is not None and ref.ended is not None:
        parts.append(f"began {moment(ref.begun)}, took {duration(ref.ended - ref.begun)}")
    return ", ".join(parts)


def listed(names: Sequence[str], most: int = _NAMES_MAX) -> str:
    """Names with commas; the tail of a list longer than ``most`` is counted."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def table(columns: Iterable[str], rows: Iterable[Sequence[str]]) -> Table:
    """A plain table; cells may hold markup."""
    made = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for column in columns:
        made.add_column(column, overflow="fold")
    for row in rows:
        made.add_row(*row)
    return made
