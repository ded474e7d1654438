"""Trends: incidents and near misses over time, and a comparison of the earlier with the later half."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from markupsafe import Markup

from detector.analysis.report.html import paragraph
from detector.analysis.report.plots import AMBER, RED, time_bars
from detector.analysis.result import Analysis
from detector.core.counting import counted
from detector.core.times import duration

DAY_SECONDS = 86_400.0
STEPS = (
    (1.0, "a second"),
    (10.0, "in 10 seconds"),
    (60.0, "a minute"),
    (600.0, "in 10 minutes"),
    (3600.0, "an hour"),
    (DAY_SECONDS, "a day"),
)
"""The times that a bar may stand for, and what the axis calls them."""
BARS_MAX = 96
"""A bar stands for the shortest time that needs no more bars than this."""
Span = tuple[float, float]


def trends(found: Analysis) -> list[Markup]:
    """Return a chart, and a sentence that compares the two halves."""
    step, name = next((each for each in STEPS if found.ended - found.begun <= BARS_MAX * each[0]), STEPS[-1])
    incidents = [each.opened for each in found.incidents]
    near_misses = [float(row["first"]) for row in found.near_misses]
    first, last = (int(at // step) for at in (found.begun, found.ended))
    layers = [
        (kind, colour, _counts(at, step, first, last))
        for kind, colour, at in (("incidents", RED, incidents), ("near misses", AMBER, near_misses))
    ]
    chart = time_bars([step * at for at in range(first, last + 1)], layers, step, f"incidents and near misses {name}")
    stood = [(each.formed or each.opened, each.closed or found.ended) for each in found.incidents]
    middle = (found.begun + found.ended) / 2
    halves = []
    for later, begin, end in ((False, found.begun, middle), (True, middle, found.ended)):
        opened, near = (sum((each >= middle) is later for each in at) for at in (incidents, near_misses))
        stuck = duration(covered(stood, begin, end))
        halves.append(f"{counted(opened, 'incident')}, {counted(near, 'near miss', 'near misses')}, a deadlock for {stuck}")
    return [chart, paragraph(f"In the earlier half: {halves[0]}. In the later half: {halves[1]}.")]


def _counts(at: Iterable[float], step: float, first: int, last: int) -> Sequence[float]:
    counts = [0.0] * (last - first + 1)
    for each in at:
        counts[min(max(int(each // step), first), last) - first] += 1
    return counts


def covered(spans: Iterable[Span], begin: float, end: float) -> float:
    """Return the number of seconds between ``begin`` and ``end`` that lie in at least one of the spans."""
    seconds, reached = 0.0, begin
    for start, stop in sorted(spans):
        seconds += max(0.0, min(stop, end) - max(start, reached))
        reached = max(reached, min(stop, end))
    return seconds
