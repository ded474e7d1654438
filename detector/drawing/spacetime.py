"""Draws a snapshot as a space-time diagram: processes as lines, time to the right, the cut across them, calls as arrows.

Rules:

1. Only what the snapshot records is drawn. An awaited call starts when its wait began; its arrival is not recorded.
2. Time is in order, but not to scale: each column is a time at which waits began, labelled with its age at the cut.
3. A call that was received before the cut ends to the left of it. A message in transit crosses it.
4. Each process involved has its own line, those of the core first. All others share one line at the bottom.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from xml.etree import ElementTree as ET

from detector.core.counting import counted
from detector.core.snapshot import Snapshot
from detector.core.times import duration
from detector.drawing.canvas import arrow_head, document, element
from detector.drawing.svg import CORE, FONT, INK, OTHER
from stilltrue.model import PartyName, ProcessName, Verdict, process_of

LINES_MAX = 24
COLUMNS_MAX = 18
ARROWS_MAX = 400
LABEL_MAX = 28
TOP, ROW, LEFT, COLUMN, AFTER = 112, 34, 216, 56, 150
TRANSIT, WAIT, CORE_WAIT = "#1a4f8b", "#f3d9b0", "#f0b4ae"
TOOLTIP_NAMES_MAX = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class _Call:
    """Calls from one line to another that began in one column; ``core``: they belong to the core."""

    source: int
    target: int
    column: int
    core: bool


def spacetime_of(snapshot: Snapshot, verdict: Verdict) -> str:
    """Draw ``snapshot`` as SVG, with the core of ``verdict`` highlighted."""
    lines = _Lines(snapshot, verdict)
    columns = _Columns(snapshot)
    cut = LEFT + COLUMN * (len(columns.ages) + 1)
    width, bottom = cut + AFTER, TOP + ROW * len(lines.names)
    summary = f"{counted(len(snapshot.waits), 'wait')}, {counted(len(snapshot.in_transit), 'message')} in transit"
    title = f"Space and time: snapshot {'' if snapshot.ref.id is None else snapshot.ref.id}".rstrip()
    calls, left_out = _calls(snapshot, verdict, lines, columns)
    return document(
        width, bottom + 58,
        element("title", title),
        element("defs", arrow_head("core", CORE, 6), arrow_head("other", OTHER, 6), arrow_head("transit", TRANSIT, 6)),
        element("rect", width="100%", height="100%", fill="#ffffff"),
        _text(20, 28, title, 17, bold=True),
        _text(20, 50, summary, 12),  # two lines: a telephone shows the first 50 letters
        _text(20, 66, "time to the right, not to scale; ages at the cut", 12),
        *(_text(LEFT + COLUMN * (at + 1), TOP - 24, age, 10, middle=True) for at, age in enumerate(columns.ages)),
        _text(cut, TOP - 24, "the cut", 11, bold=True, middle=True),
        *(part for at in range(len(lines.names)) for part in _line(lines, at, width)),
        *_waiting(calls, cut),
        element("line", x1=cut, y1=TOP - 18, x2=cut, y2=bottom + 4, stroke=INK, stroke_width=2, stroke_dasharray="6 4"),
        *_cuts(lines, cut),
        *(_arrow(call, count) for call, count in calls.items()),
        *_in_transit(snapshot, lines, cut),
        *_legend(bottom + 32, left_out),
        font_family=FONT,
    )  # fmt: skip


class _Lines:
    """Assigns processes to lines (rule 4)."""

    def __init__(self, snapshot: Snapshot, verdict: Verdict) -> None:
        core = {process_of(party) for party in verdict.core}
        behind = {process_of(party) for party in verdict.behind}
        moving = {end for message in snapshot.in_transit for end in (message.source, message.target) if end is not None}
        waiting = {process_of(name) for name in snapshot.waits.names}
        processes = {*snapshot.present(), *snapshot.missing}
        involved = [*sorted(core), *sorted(behind - core), *sorted((moving | waiting) - core - behind)]
        shown = involved if len(involved) <= LINES_MAX else involved[: LINES_MAX - 1]
        self.core = core
        self.missing = frozenset(snapshot.missing)
        self.position: dict[ProcessName, int] = {name: at for at, name in enumerate(shown)}
        self.names = [str(name) for name in shown]
        self.others = sorted(processes.difference(shown))
        if self.others:
            self.names.append(f"{len(self.others)} more")

    def of(self, process: ProcessName) -> int:
        """The line of a process."""
        return self.position.get(process, len(self.names) - 1)

    def tooltip(self, at: int) -> str:
        """The names of a line's processes."""
        if at < len(self.position):
            return self.names[at]
        more = f" and {len(self.others) - TOOLTIP_NAMES_MAX} more" if len(self.others) > TOOLTIP_NAMES_MAX else ""
        return ", ".join(self.others[:TOOLTIP_NAMES_MAX]) + more


class _Columns:
    """Assigns start times to at most ``COLUMNS_MAX`` columns (rule 2), each labelled with the age of its first."""

    def __init__(self, snapshot: Snapshot) -> None:
        known = sorted({wait.since for wait in snapshot.waits.waits() if wait.since is not None})
        share = max(1, -(-len(known) // COLUMNS_MAX))
        begins = known[::share]
        now = snapshot.ref.ended if snapshot.ref.ended is not None else max(known, default=0.0)
        ages = [duration(max(0.0, now - begun)) for begun in begins] or ["?"]
        self.ages = [age if at == 0 or ages[at - 1] != age else "" for at, age in enumerate(ages)]
        self._column = {since: at // share for at, since in enumerate(known)}

    def of(self, since: float | None) -> int:
        """The column of a start time; the first one if it is unknown."""
        return 0 if since is None else self._column[since]


def _calls(snapshot: Snapshot, verdict: Verdict, lines: _Lines, columns: _Columns) -> tuple[dict[_Call, int], int]:
    """The calls between lines with the number of waits each represents, and the number of waits left out."""
    core = frozenset(verdict.core)
    found: Counter[_Call] = Counter()
    for wait in snapshot.waits.waits():
        source = lines.of(process_of(wait.waiter))
        for target in {lines.of(process_of(PartyName(party))) for party in wait.among}:
            found[_Call(source=source, target=target, column=columns.of(wait.since), core=wait.waiter in core)] += 1
    shown = sorted(found.items(), key=lambda one: (not one[0].core, -one[1], one[0].source, one[0].target, one[0].column))
    return dict(shown[:ARROWS_MAX]), sum(count for _, count in shown[ARROWS_MAX:])


def _line(lines: _Lines, at: int, width: float) -> Iterable[ET.Element]:
    y, name = _y(at), lines.names[at]
    colour = CORE if at < len(lines.position) and name in lines.core else INK
    label = _text(LEFT - 12, y + 4, name if len(name) <= LABEL_MAX else name[: LABEL_MAX - 1] + "\N{HORIZONTAL ELLIPSIS}", 12)
    label.set("text-anchor", "end")
    label.set("fill", colour)
    label.append(element("title", lines.tooltip(at)))
    yield label
    yield element("line", x1=LEFT, y1=y, x2=width - 20, y2=y, stroke="#b6c0ca", stroke_width=1.2)


def _cuts(lines: _Lines, cut: float) -> Iterable[ET.Element]:
    """A dot where each process cut; none for processes that did not report."""
    for at, name in enumerate(lines.names):
        if name not in lines.missing:
            yield element("circle", element("title", f"{lines.tooltip(at)}: its cut"), cx=cut, cy=_y(at), r=4, fill=INK)


def _waiting(calls: dict[_Call, int], cut: float) -> Iterable[ET.Element]:
    """A bar on the line of each process that waits, from its first wait to the cut."""
    first: dict[int, tuple[int, bool]] = {}
    for call in calls:
        column, core = first.get(call.source, (call.column, False))
        first[call.source] = min(column, call.column), core or call.core
    for line, (column, core) in first.items():
        x = _x(column)
        yield element(
            "rect", element("title", "waits from here on"), x=x, y=_y(line) - 3, width=cut - x, height=6, rx=3,
            fill=CORE_WAIT if core else WAIT,
        )  # fmt: skip


def _arrow(call: _Call, count: int) -> ET.Element:
    """An arrow from where a call was made to the line of the awaited party (rule 3)."""
    kind, colour = ("core", CORE) if call.core else ("other", OTHER)
    x, y, end = _x(call.column), _y(call.source), _y(call.target)
    to = x + COLUMN * 0.72
    path = f"M{x:.0f} {y:.0f}L{to:.0f} {end:.0f}"
    if call.source == call.target:
        path = f"M{x:.0f} {y:.0f}c6 -20 {COLUMN * 0.6:.0f} -20 {COLUMN * 0.6:.0f} -3"
    tooltip = element("title", counted(count, "wait") + (" of the core" if call.core else ""))
    return element(
        "path", tooltip, d=path, fill="none", stroke=colour, stroke_width=1.8 if call.core else 1.2, marker_end=f"url(#{kind})"
    )


def _in_transit(snapshot: Snapshot, lines: _Lines, cut: float) -> Iterable[ET.Element]:
    """Arrows for messages that were sent before the cut but not received before it."""
    found: Counter[tuple[int, int | None]] = Counter(
        (lines.of(message.source), None if message.target is None else lines.of(message.target))
        for message in snapshot.in_transit
    )
    for (source, target), count in sorted(found.items(), key=lambda one: (one[0][0], one[0][1] or 0))[:ARROWS_MAX]:
        y = _y(source)
        end = y + ROW * 0.6 if target is None else _y(target)
        yield element(
            "path", element("title", f"{counted(count, 'message')} in transit{_to(target)}"),
            d=f"M{cut - COLUMN * 0.4:.0f} {y:.0f}L{cut + AFTER * 0.55:.0f} {end:.0f}", fill="none", stroke=TRANSIT,
            stroke_width=1.6, stroke_dasharray="5 3", marker_end="url(#transit)",
        )  # fmt: skip


def _to(target: int | None) -> str:
    return ", to an unknown process" if target is None else ""


def _legend(y: float, left_out: int) -> Iterable[ET.Element]:
    x = 20.0
    entries = [("call of the core", CORE), ("its wait", CORE_WAIT), ("other call", OTHER), ("its wait", WAIT)]
    entries.append(("in transit across the cut", TRANSIT))
    for words, colour in entries:
        yield element("line", x1=x, y1=y - 4, x2=x + 18, y2=y - 4, stroke=colour, stroke_width=3)
        yield _text(x + 24, y, words, 11)
        x += 44 + 6.4 * len(words)
    if left_out:
        yield _text(x, y, f"{left_out} waits are left out", 11, bold=True)


def _x(column: int) -> float:
    return LEFT + COLUMN * (column + 1)


def _y(line: int) -> float:
    return TOP + ROW * line + ROW / 2


def _text(x: float, y: float, text: str, size: float, *, bold: bool = False, middle: bool = False) -> ET.Element:
    made = element("text", text, x=x, y=y, font_size=size, fill=INK)
    if bold:
        made.set("font-weight", "600")
    if middle:
        made.set("text-anchor", "middle")
    return made
