"""The one door to pictures: a snapshot and a verdict in, a text in the wanted format out."""

from __future__ import annotations

from enum import Enum

from detector.core.snapshot import Snapshot
from detector.drawing.dot import dot_of
from detector.drawing.scene import scene_of
from detector.drawing.svg import svg_of
from stilltrue.model import Verdict


class Format(Enum):
    """In which language a wait graph is drawn. DOT and SVG show what a person can read; the others show everything."""

    DOT = "dot"
    SVG = "svg"
    GRAPHML = "graphml"
    LINKS = "links"


def draw(snapshot: Snapshot, verdict: Verdict, form: Format) -> str:
    """The wait graph of ``snapshot`` with the core of ``verdict`` highlighted, each wait with what for and how long."""
    if form is Format.DOT:
        return dot_of(scene_of(snapshot, verdict))
    if form is Format.SVG:
        return svg_of(scene_of(snapshot, verdict))
    from detector.drawing.exchange import graphml_of, links_of  # noqa: PLC0415 - networkx takes half a second to load

    return graphml_of(snapshot, verdict) if form is Format.GRAPHML else links_of(snapshot, verdict)
