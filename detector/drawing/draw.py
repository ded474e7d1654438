"""Draws the wait-for graph of a snapshot, with its verdict, in any of the formats."""

from __future__ import annotations

from enum import Enum

from detector.core.snapshot import Snapshot
from detector.drawing.dot import dot_of
from detector.drawing.scene import scene_of
from detector.drawing.spacetime import spacetime_of
from detector.drawing.svg import svg_of
from stilltrue.model import Verdict


class Format(Enum):
    """The formats of a picture of the wait-for graph; DOT and SVG show what a person can read, the next two everything.

    SPACE_TIME is the snapshot as a space-time diagram, in SVG.
    """

    DOT = "dot"
    SVG = "svg"
    GRAPHML = "graphml"
    LINKS = "links"
    SPACE_TIME = "space-time"


def draw(snapshot: Snapshot, verdict: Verdict, form: Format) -> str:
    """Draw ``snapshot``, with the core of ``verdict`` highlighted and what each wait is for."""
    if form is Format.DOT:
        return dot_of(scene_of(snapshot, verdict))
    if form is Format.SVG:
        return svg_of(scene_of(snapshot, verdict))
    if form is Format.SPACE_TIME:
        return spacetime_of(snapshot, verdict)
    from detector.drawing.exchange import graphml_of, links_of  # noqa: PLC0415 - networkx takes half a second to load

    return graphml_of(snapshot, verdict) if form is Format.GRAPHML else links_of(snapshot, verdict)
