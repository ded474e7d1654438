"""Draws what a snapshot costs by the number of members: ``python -m tests.bench.fleet.plot FILE.json SVG``.

Each line of the file is a row of ``python -m tests.bench.fleet --json``. Both axes are logarithmic, so that what is linear is
a straight line at 45 degrees.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np

from detector.drawing.canvas import document, element

WIDTH, HEIGHT, MARGIN = 560.0, 360.0, 60.0
MEMBERS = (10.0, 20_000.0)
SECONDS = (0.01, 10.0)


def fitted(rows: Sequence[dict[str, Any]]) -> tuple[float, float]:
    """Processor seconds per snapshot: those of a member, and those without any. Each row counts by its relative error."""
    seconds = np.array([row["processor"] for row in rows])
    slope, start = np.polyfit([row["members"] for row in rows], seconds, 1, w=1 / seconds)
    return float(slope), float(start)


def plot(rows: Sequence[dict[str, Any]]) -> str:
    """The SVG."""
    slope, start = fitted(rows)
    ends = [(members, max(SECONDS[0], start + slope * members)) for members in np.geomspace(*MEMBERS, 60)]
    path = " ".join(f"{_x(members):.1f},{_y(seconds):.1f}" for members, seconds in ends)
    points = [
        element("circle", element("title", f"{row['members']} members: {row['processor']:.3f} s"), cx=_x(row["members"]),
                cy=_y(row["processor"]), r=4, fill="#1f77b4")
        for row in rows
    ]  # fmt: skip
    text = f"fitted: {1000 * start:.0f} ms and {1000 * slope:.2f} ms a member"
    return document(
        WIDTH, HEIGHT,
        element("rect", width=WIDTH, height=HEIGHT, fill="#ffffff"),
        *_axes(),
        element("polyline", points=path, fill="none", stroke="#888888"),
        *points,
        element("text", text, x=MARGIN + 12, y=MARGIN - 12, font_size=13),
        element("text", "members", x=WIDTH / 2, y=HEIGHT - 14, font_size=13, text_anchor="middle"),
        element("text", "processor seconds per snapshot", x=12, y=24, font_size=13),
        role="img", font_family="sans-serif",
    )  # fmt: skip


def _axes() -> Iterator[ET.Element]:
    for power in range(-2, 2):
        at = _y(10.0**power)
        yield element("line", x1=MARGIN, x2=WIDTH - 20, y1=at, y2=at, stroke="#dddddd")
        yield element("text", f"{10.0**power:g}", x=MARGIN - 8, y=at + 4, font_size=12, text_anchor="end")
    for members in (10, 30, 100, 300, 1000, 3000, 10_000):
        at = _x(members)
        yield element("line", x1=at, x2=at, y1=MARGIN, y2=HEIGHT - MARGIN, stroke="#dddddd")
        yield element("text", str(members), x=at, y=HEIGHT - MARGIN + 18, font_size=12, text_anchor="middle")


def _x(members: float) -> float:
    return MARGIN + (WIDTH - MARGIN - 20) * _share(members, MEMBERS)


def _y(seconds: float) -> float:
    return HEIGHT - MARGIN - (HEIGHT - 2 * MARGIN) * _share(seconds, SECONDS)


def _share(value: float, of: tuple[float, float]) -> float:
    return math.log(value / of[0]) / math.log(of[1] / of[0])


def main() -> None:
    """Draw the fleets of which every snapshot was complete."""
    rows = [json.loads(line) for line in Path(sys.argv[1]).read_text().splitlines()]
    Path(sys.argv[2]).write_text(plot([row for row in rows if not row["missing"]]))


if __name__ == "__main__":
    main()
