"""Draws the space-time diagram of a run as SVG: a line per process, messages as arrows, the cut as a line across them.

It does not depend on any world: its input is a list of events in the order in which they happened.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from xml.etree import ElementTree as ET

from detector.drawing.canvas import arrow_head, document, element
from stilltrue.model import ProcessName, SnapshotId

_LEFT, _TOP, _STEP, _LANE = 110, 56, 46, 84
_STYLE = (
    "svg{background:#fff;font:13px system-ui,sans-serif}text{fill:#222}.lane{stroke:#888}.dot{fill:#222}"
    ".message{stroke:#222;fill:none}.transit{stroke:#d9480f;fill:none;stroke-width:2.2}.ttext{fill:#d9480f}"
    ".marker{stroke:#868e96;stroke-dasharray:4 4;fill:none}.cut{stroke:#1971c2;stroke-width:2;fill:none}"
    ".cutdot{fill:#1971c2}.small{font-size:11px}"
)


class Kind(Enum):
    """The kinds of events at a process."""

    INTERNAL = "internal"
    SEND = "send"
    RECEIVE = "receive"
    CUT = "cut"


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One event of the run.

    ``message`` is a number that pairs a SEND with its RECEIVE. ``snapshot`` is set for a CUT, and for the SEND and
    RECEIVE of a marker (``marker``). ``target`` is used for a SEND whose message is never received.
    """

    process: ProcessName
    kind: Kind
    label: str = ""
    message: int | None = None
    marker: bool = False
    snapshot: SnapshotId | None = None
    target: ProcessName | None = None


@dataclass(frozen=True, slots=True)
class _Arrow:
    """A message between two points of the picture; ``end`` is None if it is never received."""

    sent: Event
    start: int
    end: int | None
    target: ProcessName | None


def diagram(events: Sequence[Event], *, snapshot: SnapshotId | None = None, title: str = "") -> str:
    """Draw ``events`` as an SVG document.

    ``snapshot`` selects the cut that is drawn and the messages in transit that are coloured; None means the first cut, if any.
    Processes are sorted by name. A message is in transit if it was sent before its source's cut and not received before its
    target's.
    """
    names = sorted({one.process for one in events} | {one.target for one in events if one.target is not None})
    lanes = {name: _TOP + index * _LANE for index, name in enumerate(names)}
    shown = snapshot if snapshot is not None else _first_cut(events)
    cuts = {e.process: at for at, e in enumerate(events) if e.kind is Kind.CUT and e.snapshot == shown}
    width = _LEFT + _STEP * (len(events) + 2)
    height = _TOP + _LANE * max(len(names) - 1, 0) + 76
    return document(
        width,
        height,
        element("title", title or "Space-time diagram"),
        element("style", _STYLE),
        element("defs", arrow_head("head", "context-stroke", 8)),
        element("text", title, x=12, y=22, font_weight=600),
        *(each for name, y in lanes.items() for each in _lane(name, y, width)),
        *(each for one in _arrows(events) for each in _arrow(one, lanes, cuts, len(events))),
        *(each for at, one in enumerate(events) for each in _dot(at, one, lanes)),
        *_cut_line(cuts, lanes, shown),
        *_legend(height, shown),
        role="img",
    )


def _first_cut(events: Iterable[Event]) -> SnapshotId | None:
    return next((one.snapshot for one in events if one.kind is Kind.CUT), None)


def _arrows(events: Sequence[Event]) -> list[_Arrow]:
    received = {one.message: at for at, one in enumerate(events) if one.kind is Kind.RECEIVE}
    arrows = []
    for at, one in enumerate(events):
        if one.kind is Kind.SEND:
            end = received.get(one.message)
            arrows.append(_Arrow(one, at, end, one.target if end is None else events[end].process))
    return arrows


def _crosses(arrow: _Arrow, cuts: Mapping[ProcessName, int]) -> bool:
    source, target = cuts.get(arrow.sent.process), None if arrow.target is None else cuts.get(arrow.target)
    if source is None or target is None:
        return False
    return arrow.start < source and (arrow.end is None or arrow.end > target)


def _x(at: int) -> int:
    return _LEFT + _STEP * (at + 1)


def _text(text: str, kind: str, x: float, y: float, anchor: str = "start") -> ET.Element:
    return element("text", text, class_=kind, x=x, y=y, text_anchor=anchor)


def _line(kind: str, x1: float, y1: float, x2: float, y2: float) -> ET.Element:
    return element("line", class_=kind, x1=x1, y1=y1, x2=x2, y2=y2)


def _lane(name: ProcessName, y: int, width: int) -> Iterator[ET.Element]:
    yield _text(name, "name", _LEFT - 12, y + 4, "end")
    yield _line("lane", _LEFT, y, width - 12, y)


def _arrow(one: _Arrow, lanes: Mapping[ProcessName, int], cuts: Mapping[ProcessName, int], count: int) -> Iterator[ET.Element]:
    if one.target is None:
        return
    x1, y1, y2 = _x(one.start), lanes[one.sent.process], lanes[one.target]
    x2 = _x(count if one.end is None else one.end)
    if one.end is None:
        y2 = y1 + (y2 - y1) * 2 // 3
    transit = not one.sent.marker and _crosses(one, cuts)
    line = _line("marker" if one.sent.marker else "transit" if transit else "message", x1, y1, x2, y2)
    line.set("marker-end", "url(#head)")
    yield line
    if one.sent.label and not one.sent.marker:
        x, y = (x1 * 2 + x2) // 3 + 6, (y1 * 2 + y2) // 3 + (4 if y2 > y1 else -4)
        yield _text(one.sent.label, "ttext small" if transit else "small", x, y)


def _dot(at: int, one: Event, lanes: Mapping[ProcessName, int]) -> Iterator[ET.Element]:
    x, y = _x(at), lanes[one.process]
    if one.kind is Kind.CUT:
        yield element("rect", class_="cutdot", x=x - 5, y=y - 5, width=10, height=10)
        return
    yield element("circle", class_="dot", cx=x, cy=y, r=2 if one.marker else 4)
    if one.label and one.kind is Kind.INTERNAL:
        yield _text(one.label, "small", x, y - 9, "middle")


def _cut_line(
    cuts: Mapping[ProcessName, int], lanes: Mapping[ProcessName, int], shown: SnapshotId | None
) -> Iterator[ET.Element]:
    if not cuts:
        return
    points = [(_x(cuts[name]), lanes[name]) for name in sorted(cuts, key=lambda name: lanes[name])]
    ends = [(points[0][0], points[0][1] - 24), *points, (points[-1][0], points[-1][1] + 24)]
    yield element("polyline", class_="cut", points=" ".join(f"{x},{y}" for x, y in ends))
    yield _text(f"cut {shown}", "small", ends[0][0], ends[0][1] - 3, "middle")


def _legend(height: int, shown: SnapshotId | None) -> Iterator[ET.Element]:
    y = height - 14
    words = [("message", "message")]
    if shown is not None:
        words += [("transit", "in transit in the cut"), ("marker", "marker"), ("cut", "cut")]
    for n, (kind, word) in enumerate(words):
        yield _line(kind, 20 + n * 170, y, 50 + n * 170, y)
        yield _text(word, "small", 56 + n * 170, y + 4)
