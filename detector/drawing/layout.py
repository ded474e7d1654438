"""Lays out a scene: the core on a ring, the other boxes in columns to its right, each near the parties that it waits for."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from detector.drawing.scene import Role, Scene

BOX_WIDTH = 250
BOX_HEIGHT = 46
GAP = 26
COLUMN_GAP = 110
COLUMN_BOXES_MAX = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The centre of each box, and the overall size, in pixels."""

    places: Mapping[str, tuple[float, float]]
    width: float
    height: float


def laid_out(scene: Scene) -> Layout:
    """Place every box of ``scene``; the layout is deterministic."""
    ring = [box.name for box in scene.boxes if box.role is Role.CORE]
    ring = ring or [box.name for box in scene.boxes if box.witness][:8]
    places = _ring(ring)
    layers = _layers(scene, ring)
    x = max((place[0] for place in places.values()), default=-BOX_WIDTH) + BOX_WIDTH + COLUMN_GAP
    for layer in layers:
        _column(scene, layer, x, places)
        x += BOX_WIDTH + COLUMN_GAP
    return _moved(places)


def _ring(parties: list[str]) -> dict[str, tuple[float, float]]:
    """Place one or two boxes in a column, more on an ellipse, clockwise from the top, wide enough that no two touch."""
    count = len(parties)
    if count <= 2:
        return {party: (0.0, at * 3.0 * BOX_HEIGHT) for at, party in enumerate(parties)}
    spacing = math.sin(2 * math.pi / max(count, 5))
    wide = (BOX_WIDTH + 1.5 * GAP) / spacing * (0.8 if count < 5 else 1.0)
    tall = max(1.5 * (BOX_HEIGHT + GAP) / spacing, 0.45 * wide, 2.2 * BOX_HEIGHT)
    turns = (2 * math.pi * at / count for at in range(count))
    return {party: (wide * math.sin(turn), -tall * math.cos(turn)) for party, turn in zip(parties, turns, strict=True)}


def _layers(scene: Scene, ring: list[str]) -> list[list[str]]:
    """The parties off the ring, by their distance from it in waits in either direction."""
    near: dict[str, list[str]] = {box.name: [] for box in scene.boxes}
    for arrow in scene.arrows:
        near[arrow.waiter].append(arrow.target)
        near[arrow.target].append(arrow.waiter)
    seen = set(ring)
    layer, layers = list(ring), []
    while layer:
        layer = list(dict.fromkeys(other for party in layer for other in near[party] if other not in seen))
        seen.update(layer)
        layers += _in_columns(layer)
    rest = [box.name for box in scene.boxes if box.name not in seen]
    return [*layers, *_in_columns(rest)]


def _in_columns(layer: list[str]) -> list[list[str]]:
    return [layer[begin : begin + COLUMN_BOXES_MAX] for begin in range(0, len(layer), COLUMN_BOXES_MAX)]


def _column(scene: Scene, layer: list[str], x: float, places: dict[str, tuple[float, float]]) -> None:
    """Place ``layer`` in a column at ``x``, ordered by the height of the neighbours already placed."""
    heights: dict[str, list[float]] = {party: [] for party in layer}
    for arrow in scene.arrows:
        for party, other in ((arrow.waiter, arrow.target), (arrow.target, arrow.waiter)):
            if party in heights and other in places:
                heights[party].append(places[other][1])
    middle = {party: sum(ys) / len(ys) if ys else 0.0 for party, ys in heights.items()}
    ordered = sorted(layer, key=lambda party: (middle[party], party))
    step = BOX_HEIGHT + GAP
    top = sum(middle.values()) / max(len(middle), 1) - step * (len(ordered) - 1) / 2
    for at, party in enumerate(ordered):
        places[party] = (x, top + at * step)


def _moved(places: dict[str, tuple[float, float]]) -> Layout:
    """Shift all boxes so that the picture begins at 0."""
    if not places:
        return Layout(places={}, width=BOX_WIDTH, height=0)
    left = min(x for x, _ in places.values()) - BOX_WIDTH / 2
    top = min(y for _, y in places.values()) - BOX_HEIGHT / 2
    moved = {party: (x - left, y - top) for party, (x, y) in places.items()}
    width = max(x for x, _ in moved.values()) + BOX_WIDTH / 2
    return Layout(places=moved, width=width, height=max(y for _, y in moved.values()) + BOX_HEIGHT / 2)
