"""Draws the wait-for graph of a snapshot and its verdict in any of the formats."""

from __future__ import annotations

from enum import Enum

from detector.core.snapshot import Snapshot
from detector.drawing.dot import dot_of
from detector.drawing.scene import scene_of
from detector.drawing.spacetime import spacetime_of
from detector.drawing.svg import svg_of
from stilltrue.model import Verdict


class Format(Enum):
    """The formats of a picture. DOT and SVG show a readable part of the wait-for graph, GRAPHML and LINKS all of it.

    SPACE_TIME is a space-time diagram of the snapshot, as SVG.
    """

    DOT = "dot"
    SVG = "svg"
    GRAPHML = "graphml"
    LINKS = "links"
    SPACE_TIME = "space-time"


def draw(snapshot: Snapshot, verdict: Verdict, form: Format) -> str:
    """Draw ``snapshot`` with the purpose of each wait, and the core of ``verdict`` highlighted."""
    if form is Format.DOT:
        return dot_of(scene_of(snapshot, verdict))
    if form is Format.SVG:
        return svg_of(scene_of(snapshot, verdict))
    if form is Format.SPACE_TIME:
        return spacetime_of(snapshot, verdict)
    from detector.drawing.exports import graphml_of, links_of  # noqa: PLC0415 - networkx takes half a second to load

    return graphml_of(snapshot, verdict) if form is Format.GRAPHML else links_of(snapshot, verdict)
