"""The plots of the report, as inline SVG: bars over time, horizontal bars, time spans, a map of services."""

from __future__ import annotations

import math
from collections.abc import Sequence
from xml.etree import ElementTree as ET

from markupsafe import Markup

from detector.core.times import write_time
from detector.drawing.canvas import element, written

WIDTH = 920
LEFT, RIGHT = 230, 20
HEAD, AXIS = 20, 46
"""Heights of the axis titles above bars and spans, and of the time axis."""
DAY_SECONDS = 86_400
STEPS_SECONDS = (
    *(1, 5, 10, 30, 60, 300, 600, 1800),
    *(hours * 3600 for hours in (1, 2, 3, 6, 12)),
    *(days * DAY_SECONDS for days in (1, 2, 7, 14, 28, 56, 182, 364)),
)
TICKS_MAX = 7
ROOM = 10
"""Distance from a dot's centre to the tip of an arrow."""
INK, RED, AMBER, BLUE, GREY, FAINT = "#1d2733", "#c62839", "#d98a00", "#2f6fb2", "#8a97a5", "#e4e9ee"
MUTED = "#516070"


def time_bars(
    times: Sequence[float], layers: Sequence[tuple[str, str, Sequence[float]]], step_seconds: float, values_name: str
) -> Markup:
    """Draw stacked bars over time. ``layers``: name, colour, a value for each of ``times``; ``values_name``: axis title."""
    if not times:
        return _empty("nothing in this period")
    height, top, left = 190, 26, 60
    begin, end = times[0], times[-1] + step_seconds
    most = max((sum(values) for values in zip(*(layer[2] for layer in layers), strict=True)), default=0) or 1
    wide = (WIDTH - left - RIGHT) * step_seconds / (end - begin)
    parts = [_text(left - 6, top + 4, f"{most:g}", "end"), _text(left - 6, top + height, "0", "end")]
    parts.append(_upright(16, top + height / 2, values_name))
    under = [0.0] * len(times)
    for name, colour, values in layers:
        for at, value in enumerate(values):
            if value > 0:
                x = left + (WIDTH - left - RIGHT) * (times[at] - begin) / (end - begin)
                high = height * value / most
                y = top + height - high - under[at]
                parts.append(
                    _box(x, y, wide - 0.5 if wide > 3 else wide, high, colour, f"{write_time(times[at])} {name}: {value:g}")
                )
                under[at] += high
    parts += _axis(begin, end, left, top + height)
    return _svg(f"{values_name} over time", top + height + AXIS, [*_legend(layers, left), *parts])


def spans(rows: Sequence[tuple[str, float, float, str, str]], begin: float, end: float, names: str) -> Markup:
    """Draw a time line per label, in order of first appearance. A row is label, begin, end, colour, tooltip.

    ``names`` is the title of the labels' axis.
    """
    if not rows:
        return Markup()
    high = 22
    line = {label: at for at, label in enumerate(dict.fromkeys(row[0] for row in rows))}
    parts = [_name(LEFT - 8, 13, names, "end")]
    for label, at in line.items():
        y = HEAD + at * high
        parts.append(_line(LEFT, y + 10, WIDTH - RIGHT, y + 10, FAINT))
        parts.append(_text(LEFT - 8, y + 14, _short(label, 30), "end"))
    for label, first, last, colour, text in rows:
        x = _across(first, begin, end)
        parts.append(_box(x, HEAD + 3 + line[label] * high, max(_across(last, begin, end) - x, 4), 14, colour, text))
    bottom = HEAD + len(line) * high
    return _svg(f"{names} over time", bottom + AXIS, [*parts, *_axis(begin, end, LEFT, bottom)])


def bars(rows: Sequence[tuple[str, float, str]], names: tuple[str, str], colour: str = BLUE) -> Markup:
    """Draw a horizontal bar per row (label, value, text after the bar). ``names``: titles of the labels and the values."""
    if not rows:
        return Markup()
    high, room = 22, WIDTH - LEFT - 250
    most = max(value for _, value, _ in rows) or 1
    parts = [_name(LEFT - 8, 13, names[0], "end"), _name(LEFT, 13, names[1])]
    for at, (label, value, text) in enumerate(rows):
        y = HEAD + at * high
        wide = room * min(value / most, 1)
        parts.append(_text(LEFT - 8, y + 14, _short(label, 30), "end"))
        parts.append(_box(LEFT, y + 3, max(wide, 1) if value else 0, 14, colour, f"{label}: {text}"))
        parts.append(_text(LEFT + wide + 8, y + 14, text))
    parts.append(_line(LEFT, HEAD, LEFT, HEAD + len(rows) * high, GREY))
    return _svg(f"{names[1]} by {names[0]}", HEAD + 4 + len(rows) * high, parts)


def histogram(values: Sequence[float], names: tuple[str, str], unit: str) -> Markup:
    """Draw the distribution of ``values`` in at most 12 bins. ``names``: titles of the values and of their counts."""
    if not values:
        return Markup()
    low, high = min(values), max(values)
    if low == high:
        return bars([(f"{low:.3g} {unit}", float(len(values)), str(len(values)))], names, RED)
    count = min(12, len(values))
    step = (high - low) / count
    counts = [0] * count
    for value in values:
        counts[min(int((value - low) / step), count - 1)] += 1
    rows = [(f"{low + at * step:.3g} to {low + (at + 1) * step:.3g} {unit}", float(n), str(n)) for at, n in enumerate(counts)]
    return bars(rows, names, RED)


def service_map(edges: Sequence[tuple[str, str, float]], hot: Sequence[frozenset[str]]) -> Markup:
    """Draw services on a circle, with arrows from waiters to targets: wider for more waits, red within a set of ``hot``."""
    if not edges:
        return _empty("no service held a worker while waiting for another service")
    burnt = frozenset[str]().union(*hot)
    names = sorted({name for edge in edges for name in edge[:2]})
    size, radius = 640, 225
    turn = 2 * math.pi / len(names)
    tall = 2 * max(
        40.0, *((radius + 95) * abs(math.sin(at * turn)) for at in range(len(names)))
    )  # two services are on one line
    place = {
        name: (size / 2 + radius * math.cos(at * turn), size / 2 + radius * math.sin(at * turn))
        for at, name in enumerate(names)
    }
    most = max(weight for *_, weight in edges)
    parts = [_tip("tip", GREY), _tip("hot", RED)]
    for source, target, weight in sorted(edges, key=lambda edge: (_within(edge, hot), edge[2])):
        colour, thin, tip = (RED, 1.6, "hot") if _within((source, target), hot) else (GREY, 0.6, "tip")
        arc = _arc(place[source], place[target], size / 2)
        wide = thin + 4 * weight / most
        parts.append(
            element(
                "path", element("title", f"{source} waits for {target}: {weight:g}"), d=arc, fill="none", stroke=colour,
                stroke_opacity=".65", stroke_width=wide, marker_end=f"url(#{tip})",
            )
        )  # fmt: skip
    for at, name in enumerate(names):
        x, y = place[name]
        colour = RED if name in burnt else BLUE
        parts.append(element("circle", cx=round(x), cy=round(y), r=5, fill=colour))
        angle = at * turn
        out_x, out_y = x + 10 * math.cos(angle), y + 10 * math.sin(angle) + 4
        parts.append(_spoke(out_x, out_y, _short(name, 20), angle))
    return _svg("which service waits for which", tall, parts, size, top=(size - tall) / 2)


def _tip(name: str, colour: str) -> ET.Element:
    box: dict[str, str | float] = {"viewBox": "0 0 8 8", "refX": 4, "refY": 4, "markerWidth": 11, "markerHeight": 11}
    shape = element("path", d="M0 0L8 4L0 8z", fill=colour)
    return element("defs", element("marker", shape, id=name, orient="auto", markerUnits="userSpaceOnUse", **box))


def _arc(begin: tuple[float, float], end: tuple[float, float], middle: float) -> str:
    """Return a path between two points of the circle, bent inwards, that ends short of the dot so that its tip shows."""
    (x, y), (u, v) = begin, end
    bent_x, bent_y = (x + u) / 2 * 0.7 + middle * 0.3, (y + v) / 2 * 0.7 + middle * 0.3
    if begin == end:  # waits within one service
        out_x, out_y = (x - middle) * 0.2, (y - middle) * 0.2
        return f"M{x:.1f} {y:.1f}C{x - out_x - out_y:.1f} {y - out_y + out_x:.1f} {_short_of((x, y), (out_x, out_y))}"
    far = math.hypot(bent_x - u, bent_y - v) or 1.0
    u, v = u + (bent_x - u) * ROOM / far, v + (bent_y - v) * ROOM / far
    return f"M{x:.1f} {y:.1f}Q{bent_x:.1f} {bent_y:.1f} {u:.1f} {v:.1f}"


def _short_of(place: tuple[float, float], out: tuple[float, float]) -> str:
    """Return the second half of a loop: its control point, and its end beside ``place``."""
    bend = (place[0] - out[0] + out[1], place[1] - out[1] - out[0])
    far = math.hypot(bend[0] - place[0], bend[1] - place[1]) or 1.0
    end = [at + (to - at) * ROOM / far for at, to in zip(place, bend, strict=True)]
    return f"{bend[0]:.1f} {bend[1]:.1f} {end[0]:.1f} {end[1]:.1f}"


def _within(edge: Sequence[object], hot: Sequence[frozenset[str]]) -> bool:
    return any(edge[0] in each and edge[1] in each for each in hot)


def _svg(name: str, height: float, parts: Sequence[ET.Element], wide: float = WIDTH, *, top: float = 0.0) -> Markup:
    """Wrap a drawing in a box that scrolls sideways, so that it stays readable on narrow screens. ``name`` is its label."""
    box = f"0 {top:.0f} {wide} {height:.0f}"
    svg = element(
        "svg", *parts, viewBox=box, width="100%", role="img", aria_label=name, fill=INK, font_size=12,
        style=f"min-width:{wide * 0.8:.0f}px;max-width:{wide}px", font_family="system-ui,sans-serif",
    )  # fmt: skip
    return Markup('<div class="wide">{}</div>').format(Markup(written(svg)))


def _empty(text: str) -> Markup:
    return Markup('<p class="none">{}</p>').format(text)


def _line(x1: float, y1: float, x2: float, y2: float, colour: str) -> ET.Element:
    return element("line", x1=x1, y1=y1, x2=x2, y2=y2, stroke=colour)


def _box(x: float, y: float, wide: float, high: float, colour: str, title: str) -> ET.Element:
    return element("rect", element("title", title), x=x, y=y, width=wide, height=high, fill=colour)


def _text(x: float, y: float, text: str, anchor: str = "start") -> ET.Element:
    return element("text", text, x=x, y=y, text_anchor=anchor)


def _name(x: float, y: float, text: str, anchor: str = "start") -> ET.Element:
    """Return an axis title."""
    return element("g", _text(x, y, text, anchor), fill=MUTED)


def _upright(x: float, y: float, text: str) -> ET.Element:
    return element("g", _text(0, 0, text, "middle"), fill=MUTED, transform=f"translate({x:.1f} {y:.1f}) rotate(-90)")


def _spoke(x: float, y: float, text: str, angle: float) -> ET.Element:
    """Return a radial label, so that labels on a crowded circle do not overlap; never upside down."""
    flipped = math.cos(angle) < 0
    turned = math.degrees(angle) + (180 if flipped else 0)
    place = f"translate({x:.1f} {y - 4:.1f}) rotate({turned:.1f})"
    return element("text", text, text_anchor="end" if flipped else "start", transform=place, dy=4)


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}\u2026"


def _across(time: float, begin: float, end: float) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * (time - begin) / max(end - begin, 1e-9)


def _axis(begin: float, end: float, left: float, y: float) -> list[ET.Element]:
    """Return the time axis, with round times as precise as their distance requires."""
    parts = [_line(left, y, WIDTH - RIGHT, y, GREY)]
    step = next((each for each in STEPS_SECONDS if end - begin < TICKS_MAX * each), (end - begin) / TICKS_MAX)
    first, last = (11, 19) if step < 60 else (5, 16) if step < DAY_SECONDS else (0, 10)
    for time in ticks(begin, end, step):
        x = left + (WIDTH - left - RIGHT) * (time - begin) / max(end - begin, 1e-9)
        words = write_time(time)[first:last].replace("T", " ")
        anchor = "end" if x > WIDTH - RIGHT - 36 else "middle"
        parts.append(_line(x, y, x, y + 5, GREY))
        parts.append(_text(x, y + 18, words, anchor))
    title = f"time (UTC), from {write_time(begin)[:10]}" if step < DAY_SECONDS else "time (UTC)"
    return [*parts, _name((left + WIDTH - RIGHT) / 2, y + 36, title, "middle")]


def ticks(begin: float, end: float, step: float) -> list[float]:
    """Return the multiples of ``step`` from ``begin`` to ``end``."""
    first, last = math.ceil(begin / step), math.floor(end / step)
    return [number * step for number in range(first, last + 1)]


def _legend(layers: Sequence[tuple[str, str, Sequence[float]]], left: float) -> list[ET.Element]:
    parts: list[ET.Element] = []
    x = left
    for name, colour, _ in layers:
        parts += [_box(x, 4, 10, 10, colour, name), _text(x + 15, 13, name)]
        x += 30 + 7 * len(name)
    return parts
