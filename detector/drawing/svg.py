"""A scene as SVG: one file, no script, no font and no picture from elsewhere."""

from __future__ import annotations

import re
from xml.sax.saxutils import escape, quoteattr

from detector.drawing.layout import BOX_HEIGHT, BOX_WIDTH, Layout, laid_out
from detector.drawing.scene import Arrow, Box, Role, Scene

UNFIT = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
"""What no XML text can hold."""
MARGIN = 32
HEAD = 78
FOOT = 44
WIDTH_MIN = 760
FONT = "ui-sans-serif, system-ui, 'DejaVu Sans', sans-serif"
FILLS = {
    Role.CORE: ("#fde2e1", "#c0392b"),
    Role.BEHIND: ("#fdf0d9", "#c07d1f"),
    Role.WAITING: ("#eef3f8", "#5b7a99"),
    Role.FREE: ("#e6f4e8", "#3b8c4a"),
    Role.MISSING: ("#f1f1f1", "#888888"),
}
WORDS = {
    Role.CORE: "core",
    Role.BEHIND: "behind the core",
    Role.WAITING: "waits, not known to be stuck",
    Role.FREE: "waits for nothing",
    Role.MISSING: "did not report",
}


def svg_of(scene: Scene) -> str:
    """The picture as one SVG text."""
    layout = laid_out(scene)
    width = max(layout.width + 2 * MARGIN, WIDTH_MIN)
    height = HEAD + layout.height + 2 * MARGIN + FOOT
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" style="max-width:100%;height:auto" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" font-family={quoteattr(FONT)}>',
        f"<title>{_text(scene.title)}</title>",
        _markers(),
        '<rect width="100%" height="100%" fill="#ffffff"/>',
        _line(MARGIN, 34, scene.title, 18, bold=True),
        _line(MARGIN, 58, _cut(scene.subtitle, int(width / 7.2)), 12.5, full=scene.subtitle),
        f'<g transform="translate({(width - layout.width) / 2:.1f} {HEAD + MARGIN / 2:.1f})">',
        *(_arrow(arrow, layout) for arrow in scene.arrows),
        *(_box(box, layout) for box in scene.boxes),
        "</g>",
        _legend(scene, height),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _markers() -> str:
    heads = (("core", "#c0392b"), ("other", "#8a98a6"))
    shapes = (
        f'<marker id="{name}" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" orient="auto">'
        f'<path d="M0 0L10 5L0 10z" fill="{colour}"/></marker>'
        for name, colour in heads
    )
    return f"<defs>{''.join(shapes)}</defs>"


def _box(box: Box, layout: Layout) -> str:
    x, y = layout.places[box.name]
    fill, line = FILLS[box.role]
    left, top = x - BOX_WIDTH / 2, y - BOX_HEIGHT / 2
    dash = ' stroke-dasharray="5 4"' if box.role is Role.MISSING else ""
    told = (
        "\n".join(box.parties[:40])
        + "\n"
        + "\n".join(box.waits or (WORDS[box.role],))
        + ("\nsuggested to give up" * box.victim)
    )
    more = f" (+{len(box.waits) - 1})" if len(box.waits) > 1 else ""
    second = box.waits[0] if box.waits else WORDS[box.role]
    name = f"\N{BALLOT X} {box.name}" if box.victim else box.name
    return (
        f'<g><title>{_text(told)}</title><rect x="{left:.1f}" y="{top:.1f}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="7" '
        f'fill="{fill}" stroke="{line}" stroke-width="{2.6 if box.witness else 1.3}"{dash}/>'
        f"{_line(left + 10, top + 19, _cut(name, 31), 12.5, bold=True)}"
        f"{_line(left + 10, top + 36, _cut(second, 43 - len(more)) + more, 10.5)}</g>"
    )


def _arrow(arrow: Arrow, layout: Layout) -> str:
    (x1, y1), (x2, y2) = layout.places[arrow.waiter], layout.places[arrow.target]
    kind, colour = ("core", "#c0392b") if arrow.core else ("other", "#8a98a6")
    style = f'fill="none" stroke="{colour}" stroke-width="{1.8 if arrow.core else 1.2}" marker-end="url(#{kind})"'
    title = f"<title>{_text(f'{arrow.waiter} waits {arrow.label}')}</title>"
    if arrow.waiter == arrow.target:
        top, right = y1 - BOX_HEIGHT / 2, x1 + BOX_WIDTH / 2
        path = f"M{right - 40:.1f} {top:.1f}c0 -30 74 -18 40 {BOX_HEIGHT / 2 - 8:.1f}"
        return f'<path d="{path}" {style}>{title}</path>'
    bend = 0.13
    cx, cy = (x1 + x2) / 2 + bend * (y1 - y2), (y1 + y2) / 2 + bend * (x2 - x1)
    sx, sy = _edge(x1, y1, cx, cy)
    ex, ey = _edge(x2, y2, cx, cy)
    return f'<path d="M{sx:.1f} {sy:.1f}Q{cx:.1f} {cy:.1f} {ex:.1f} {ey:.1f}" {style}>{title}</path>'


def _edge(x: float, y: float, towards_x: float, towards_y: float) -> tuple[float, float]:
    """Where the line from the middle of a box towards a point leaves the box."""
    dx, dy = towards_x - x, towards_y - y
    wide = BOX_WIDTH / 2 / abs(dx) if dx else float("inf")
    tall = BOX_HEIGHT / 2 / abs(dy) if dy else float("inf")
    share = min(wide, tall, 1.0)
    return x + dx * share, y + dy * share


def _legend(scene: Scene, height: float) -> str:
    parts, x = [], float(MARGIN)
    for role in Role:
        if not any(box.role is role for box in scene.boxes):
            continue
        fill, line = FILLS[role]
        parts.append(f'<rect x="{x:.0f}" y="{height - 30:.0f}" width="14" height="14" rx="3" fill="{fill}" stroke="{line}"/>')
        parts.append(_line(x + 20, height - 19, WORDS[role], 11))
        x += 40 + 6.6 * len(WORDS[role])
    if any(box.victim for box in scene.boxes):
        parts.append(_line(x, height - 19, "\N{BALLOT X} suggested to give up", 11))
        x += 170
    if scene.left_out:
        parts.append(_line(x, height - 19, scene.left_out, 11, bold=True))
    return "".join(parts)


def _line(x: float, y: float, text: str, size: float, *, bold: bool = False, full: str = "") -> str:
    weight = ' font-weight="600"' if bold else ""
    title = f"<title>{_text(full)}</title>" if full and full != text else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="#22303c"{weight}>{_text(text)}{title}</text>'


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "\N{HORIZONTAL ELLIPSIS}"


def _text(text: str) -> str:
    """Text that may stand in XML: markup escaped, characters that XML cannot hold replaced."""
    return escape(UNFIT.sub("?", text))
