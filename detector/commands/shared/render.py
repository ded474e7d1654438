"""Prints verdicts and tables: in colour on a terminal, plain in a pipe."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich import markup
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.table import Table
from rich.text import Text

from detector.core.counting import counted
from detector.core.sentences import NO_MEMBERS, remarks_of, waiter_in
from detector.core.times import duration, local_time
from detector.ops.printable_text import printable, printable_json
from stilltrue.model import Holds, Verdict

EXIT_CODES = {Holds.TRUE: 0, Holds.FALSE: 1, Holds.UNDETERMINED: 3}
_STYLES = {Holds.TRUE: "bold red", Holds.FALSE: "green", Holds.UNDETERMINED: "yellow"}
_GOOD_NEWS = {"termination", "quiescence", "phase-ended"}
START_ONE = (
    "start one with 'stilltrue run -- python app.py': it joins with its first thread, event loop, child process,"
    " gRPC channel or server, or HTTP request; a program without these joins by stilltrue.instrument().start()"
)
NOBODY = f"{NO_MEMBERS}: {START_ONE}"
_NAMES_MAX = 20
PIPE_WIDTH = 1_000_000
WORD_WIDTH = 12
"""Narrower columns of words are unreadable."""
GAP = 2
"""Spaces between two columns."""
INDENT = 2
"""Spaces before each line of a verdict's evidence."""


def escape(text: str) -> str:
    """Escape untrusted text for ``console().print``: markup and terminal control characters."""
    return markup.escape(printable(text))


def console(*, wide: bool = False) -> Console:
    """Standard output; in a pipe, or if ``wide``, each row of a table is one line, however long."""
    return _Console(emoji=False, highlight=False, soft_wrap=True, width=PIPE_WIDTH if wide or not sys.stdout.isatty() else None)


def _text(line: str) -> Text:
    """``line`` with its markup applied. Rich would turn the end of ``lock:key:`` into an emoji: the name would be lost."""
    return Text.from_markup(line, emoji=False)


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Rich would exit with 1, which is an answer."""
        raise BrokenPipeError


def print_json(value: Any) -> None:
    """Print ``value`` as one line of JSON."""
    sys.stdout.write(printable_json(json.dumps(value, ensure_ascii=False)) + "\n")


def holds_text(verdict: Verdict) -> str:
    """The answer in words; a FALSE is dated: it speaks of the moment when the snapshot began."""
    match verdict.holds:
        case Holds.TRUE:
            return "TRUE"
        case Holds.FALSE:
            begun = verdict.snapshot.begun
            return "not when the snapshot began" if begun is None else f"not as of {local_time(begun)}"
        case Holds.UNDETERMINED:
            return "undetermined"


def styled(holds: Holds, predicate: str, text: str) -> str:
    """``text`` in the answer's colour."""
    style = "bold green" if holds is Holds.TRUE and predicate in _GOOD_NEWS else _STYLES[holds]
    return f"[{style}]{escape(text)}[/]"


def print_verdict(verdict: Verdict, *, title: str = "", out: Console | None = None) -> None:
    """Print a verdict with its evidence, under ``title`` if it is one of several; ``out``: where, if not as usual."""
    _print(verdict, f"{title}: " if title else "", out or console())


def _print(verdict: Verdict, head: str, out: Console) -> None:
    answer = styled(verdict.holds, verdict.predicate, holds_text(verdict))
    out.print(f"{escape(head + verdict.predicate)}: {answer}")
    if verdict.witness.text:
        for part in _parts(out, verdict.witness.text):
            print_indented(out, escape(part))
    for sentence in verdict.explanation:
        print_indented(out, f"- {escape(sentence)}")
    for word, names in _remaining_parts(verdict):
        print_indented(out, f"{word} ({len(names)}): {escape(listed(names))}")
    if verdict.until is not None:
        print_indented(out, f"until {local_time(verdict.until)} (when a deadline expires)")
    if verdict.assumptions:
        print_indented(out, f"[dim]assuming that {escape('; '.join(verdict.assumptions))}[/]")
    if verdict.snapshot.id is not None:
        print_indented(out, f"[dim]{escape(_snapshot_line(verdict))}[/]")


def _parts(out: Console, text: str) -> list[str]:
    """A witness text as the lines to print: on a terminal each remark has its own."""
    return [text] if out.width >= PIPE_WIDTH else remarks_of(text)


def print_indented(out: Console, line: str, indent: int = INDENT) -> None:
    """Print ``line``, which may contain markup, after ``indent`` spaces; on a terminal wrapped between words, and aligned."""
    text = _text(line)
    for number, part in enumerate(text.divide(_breaks(text.plain, out.width - indent - INDENT))):
        part.rstrip()
        out.print(Text(" " * (indent + INDENT if number else indent)) + part)


def _breaks(text: str, width: int) -> list[int]:
    """Where to break ``text`` into lines of at most ``width`` cells. A longer word is not broken, so that it can be copied."""
    found: list[int] = []
    column = 0
    for word in re.finditer(r"\S+\s*", text):
        if column and column + cell_len(word[0].rstrip()) > width:
            found.append(word.start())
            column = 0
        column += cell_len(word[0])
    return found


def _remaining_parts(verdict: Verdict) -> list[tuple[str, Sequence[str]]]:
    """The parts of a verdict that its evidence does not name."""
    suggested = " ".join(sentence for sentence in verdict.explanation if sentence.startswith("aborting "))
    explained = {*verdict.witness.parties, *map(waiter_in, verdict.explanation)}
    parts: list[tuple[str, Sequence[str], bool]] = [
        ("core", verdict.core, not explained.issuperset(verdict.core)),
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
    """Names separated by commas; beyond ``most``, only their number."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def table(
    columns: Iterable[str],
    rows: Iterable[Sequence[str]],
    *,
    flexible: Collection[str] = (),
    whole: Collection[str] = (),
    least: Sequence[str] = (),
) -> AdaptiveTable:
    """A borderless table; cells may contain rich markup.

    If it is too wide, ``flexible`` columns wrap between words, and ``whole`` columns also break words across lines. If words of
    flexible columns still lack room, the ``least`` important columns are left out, one after the other. If even that does not
    help, each cell gets its own line, after its column's name.
    """
    return AdaptiveTable(
        columns=tuple(columns), rows=tuple(map(tuple, rows)), flexible=flexible, whole=whole, least=tuple(least)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptiveTable:
    """A table that chooses its layout by the console's width when it is printed."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    flexible: Collection[str]
    whole: Collection[str]
    least: tuple[str, ...]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Columns side by side if they fit, else one cell per line."""
        if options.max_width >= PIPE_WIDTH:
            yield from self._lines()
            return
        shown = self._widths()
        for name in (*self.least, ""):
            spare = options.max_width - sum(least for least, _ in shown.values()) - GAP * (len(shown) - 1)
            if spare >= 0 or not self.rows:
                yield self._side_by_side(_widened(shown, spare))
                return
            shown.pop(name, None)
        yield Group(*[self._cells(row) for row in self.rows])

    def _widths(self) -> dict[str, tuple[int, int]]:
        """The least width of each column, and that on one line. A column that wraps holds its words, unless it breaks them."""
        found: dict[str, tuple[int, int]] = {}
        for name, *cells in zip(self.columns, *self.rows, strict=True):
            texts = [name, *(_text(cell).plain for cell in cells)]
            width = max(map(cell_len, texts))
            least = min(width, WORD_WIDTH) if name in {*self.flexible, *self.whole} else width
            if name in self.flexible:
                least = max(least, *(cell_len(word) for text in texts for word in text.split()))
            found[name] = least, width
        return found

    def _lines(self) -> Iterator[Text]:
        """Each row on one line, without trailing spaces: nothing has to fit."""
        rows = [tuple(Text(name, style="bold") for name in self.columns)]
        rows += [tuple(map(_text, row)) for row in self.rows]
        widths = [max(cell.cell_len for cell in column) for column in zip(*rows, strict=True)]
        for row in rows:
            for cell, width in zip(row, widths, strict=True):
                cell.pad_right(width - cell.cell_len)
            line = Text(" " * GAP).join(row)
            line.rstrip()
            yield line

    def _side_by_side(self, shown: Mapping[str, int]) -> Table:
        """The columns of ``shown``, with their widths."""
        made = Table(box=None, pad_edge=False, header_style="bold", padding=(0, GAP, 0, 0))
        for column, width in shown.items():
            made.add_column(column, overflow="fold", no_wrap=column not in {*self.flexible, *self.whole}, width=width)
        for row in self.rows:
            made.add_row(*(cell for name, cell in zip(self.columns, row, strict=True) if name in shown))
        return made

    def _cells(self, row: Sequence[str]) -> Table:
        made = Table.grid(padding=(0, GAP, 0, 0))
        made.add_column(no_wrap=True, style="bold")
        made.add_column(overflow="fold")
        for name, cell in zip(self.columns, row, strict=True):
            made.add_row(name, cell)
        made.add_row()
        return made


def _widened(widths: Mapping[str, tuple[int, int]], spare: int) -> dict[str, int]:
    """Widths between the least and the one-line width of each column, with the ``spare`` space shared out."""
    found: dict[str, int] = {}
    by_wish = sorted(widths, key=lambda name: widths[name][1] - widths[name][0])
    for place, name in enumerate(by_wish):
        least, width = widths[name]
        found[name] = least + min(width - least, max(spare, 0) // (len(by_wish) - place))
        spare -= found[name] - least
    return {name: found[name] for name in widths}
