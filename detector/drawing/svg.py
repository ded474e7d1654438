"""Draws a scene as SVG, a self-contained file without scripts, fonts or images."""

from __future__ import annotations

from collections.abc import Iterator
from xml.etree import ElementTree as ET

from detector.drawing.canvas import arrow_head, document, element
from detector.drawing.layout import BOX_HEIGHT, BOX_WIDTH, Layout, laid_out
from detector.drawing.scene import Arrow, Box, Role, Scene

MARGIN = 32
HEAD = 78
FOOT = 44
WIDTH_MIN = 760
TOOLTIP_PARTIES_MAX = 40
NAME_MAX = 29
"""Characters of a name that fit a box."""
PROCESS_MIN = 8
"""Characters of a process's name that are shown however long its party's is."""
FONT = "ui-sans-serif, system-ui, 'DejaVu Sans', sans-serif"
INK = "#22303c"
CORE, OTHER = "#c0392b", "#8a98a6"
FILLS = {
    Role.CORE: ("#fde2e1", CORE),
    Role.BEHIND: ("#fdf0d9", "#c07d1f"),
    Role.WAITING: ("#eef3f8", "#5b7a99"),
    Role.FREE: ("#e6f4e8", "#3b8c4a"),
    Role.MISSING: ("#f1f1f1", "#888888"),
}
WORDS = {
    Role.CORE: "core",
    Role.BEHIND: "behind the core",
    Role.WAITING: "waiting, not known to be deadlocked",
    Role.FREE: "not waiting",
    Role.MISSING: "did not report",
}
VICTIM = "suggested victim"


def svg_of(scene: Scene) -> str:
    """Draw ``scene`` as an SVG document."""
    layout = laid_out(scene)
    width = max(layout.width + 2 * MARGIN, WIDTH_MIN)
    height = HEAD + layout.height + 2 * MARGIN + FOOT
    graph = element("g", transform=f"translate({(width - layout.width) / 2:.1f} {HEAD + MARGIN / 2:.1f})")
    graph.extend(_arrow(arrow, layout) for arrow in scene.arrows)
    graph.extend(_box(box, layout) for box in scene.boxes)
    return document(
        width,
        height,
        element("title", scene.title),
        element("defs", arrow_head("core", CORE, 7), arrow_head("other", OTHER, 7)),
        element("rect", width="100%", height="100%", fill="#ffffff"),
        _line(MARGIN, 34, scene.title, 18, bold=True),
        _line(MARGIN, 58, _shortened(scene.subtitle, int(width / 7.2)), 12.5, full=scene.subtitle),
        graph,
        *_legend(scene, height - 19),
        font_family=FONT,
    )


def _box(box: Box, layout: Layout) -> ET.Element:
    x, y = layout.places[box.name]
    fill, line = FILLS[box.role]
    left, top = x - BOX_WIDTH / 2, y - BOX_HEIGHT / 2
    waits = box.waits or (WORDS[box.role],)
    tooltip = "\n".join((*box.parties[:TOOLTIP_PARTIES_MAX], *waits, *((VICTIM,) if box.victim else ())))
    more = f" (+{len(box.waits) - 1})" if len(box.waits) > 1 else ""
    name = f"\N{BALLOT X} {box.name}" if box.victim else box.name
    frame = element(
        "rect", x=left, y=top, width=BOX_WIDTH, height=BOX_HEIGHT, rx=7, fill=fill, stroke=line,
        stroke_width=2.6 if box.witness else 1.3,
    )  # fmt: skip
    if box.role is Role.MISSING:
        frame.set("stroke-dasharray", "5 4")
    return element(
        "g",
        element("title", tooltip),
        frame,
        _line(left + 10, top + 19, _party_shortened(name, NAME_MAX), 12.5, bold=True),
        _line(left + 10, top + 36, _shortened(waits[0], 43 - len(more)) + more, 10.5),
    )


def _arrow(arrow: Arrow, layout: Layout) -> ET.Element:
    (x1, y1), (x2, y2) = layout.places[arrow.waiter], layout.places[arrow.target]
    kind, colour, stroke = ("core", CORE, 1.8) if arrow.core else ("other", OTHER, 1.2)
    if arrow.waiter == arrow.target:
        top, right = y1 - BOX_HEIGHT / 2, x1 + BOX_WIDTH / 2
        path = f"M{right - 40:.1f} {top:.1f}c0 -30 74 -18 40 {BOX_HEIGHT / 2 - 8:.1f}"
    else:
        bend = 0.13
        cx, cy = (x1 + x2) / 2 + bend * (y1 - y2), (y1 + y2) / 2 + bend * (x2 - x1)
        sx, sy = _edge(x1, y1, cx, cy)
        ex, ey = _edge(x2, y2, cx, cy)
        path = f"M{sx:.1f} {sy:.1f}Q{cx:.1f} {cy:.1f} {ex:.1f} {ey:.1f}"
    tooltip = element("title", f"{arrow.waiter} waits {arrow.label}")
    return element("path", tooltip, d=path, fill="none", stroke=colour, stroke_width=stroke, marker_end=f"url(#{kind})")


def _edge(x: float, y: float, towards_x: float, towards_y: float) -> tuple[float, float]:
    """The point where a line from the centre of a box towards another point leaves the box."""
    dx, dy = towards_x - x, towards_y - y
    wide = BOX_WIDTH / 2 / abs(dx) if dx else float("inf")
    tall = BOX_HEIGHT / 2 / abs(dy) if dy else float("inf")
    share = min(wide, tall, 1.0)
    return x + dx * share, y + dy * share


def _legend(scene: Scene, y: float) -> Iterator[ET.Element]:
    x = float(MARGIN)
    for role in Role:
        if any(box.role is role for box in scene.boxes):
            fill, line = FILLS[role]
            yield element("rect", x=x, y=y - 11, width=14, height=14, rx=3, fill=fill, stroke=line)
            yield _line(x + 20, y, WORDS[role], 11)
            x += 40 + 6.6 * len(WORDS[role])
    if any(box.victim for box in scene.boxes):
        yield _line(x, y, f"\N{BALLOT X} {VICTIM}", 11)
        x += 130
    if scene.left_out:
        yield _line(x, y, scene.left_out, 11, bold=True)


def _line(x: float, y: float, text: str, size: float, *, bold: bool = False, full: str = "") -> ET.Element:
    """A line of text; ``full`` is its tooltip if the text is shortened."""
    made = element("text", text, x=x, y=y, font_size=size, fill=INK)
    if bold:
        made.set("font-weight", "600")
    if full and full != text:
        made.append(element("title", full))
    return made


def _shortened(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "\N{HORIZONTAL ELLIPSIS}"


def _party_shortened(name: str, most: int) -> str:
    """``name``, with the process shortened first: threads and calls of one process differ only in what follows it."""
    process, slash, party = name.partition("/")
    if len(name) <= most or not slash:
        return _shortened(name, most)
    process = _shortened(process, max(PROCESS_MIN, most - 1 - len(party)))
    return f"{process}/{_shortened(party, most - 1 - len(process))}"
