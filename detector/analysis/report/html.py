"""The report's page and its parts. The template escapes all texts."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from detector.core.times import write_time

_PAGES = Environment(loader=PackageLoader("detector.analysis.report", "."), autoescape=True, undefined=StrictUndefined)


@dataclass(frozen=True, slots=True)
class Code:
    """A cell with a program's identifier."""

    code: str


@dataclass(frozen=True, slots=True)
class Folded:
    """A cell that expands to the lines ``inside``."""

    text: str
    inside: Sequence[str]


Cell = str | Code | Folded | Sequence[str]
"""A text, an identifier, folded lines, or unbroken words separated by commas."""


@dataclass(frozen=True, slots=True)
class Tile:
    """A number at the top of the page; ``kind`` is ``bad``, ``warn`` or empty."""

    kind: str
    value: str
    name: str


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under ``heads``, or the sentence ``none`` if there are no rows."""

    heads: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    none: str


@dataclass(frozen=True, slots=True)
class Picture:
    """An SVG document that expands under a title. It is embedded as an image, so that ids in two documents do not collide."""

    title: str
    svg: str
    shown: bool = False

    @property
    def source(self) -> str:
        """The image as a data URL."""
        return f"data:image/svg+xml;base64,{b64encode(self.svg.encode()).decode()}"


@dataclass(frozen=True, slots=True)
class Section:
    """A section of the page; its ``parts`` are tables, pictures and our own HTML (plots)."""

    title: str
    lead: str
    parts: Sequence[Table | Picture | Markup]


def page(title: str, lead: str, tiles: Sequence[Tile], sections: Sequence[Section]) -> str:
    """Return the whole page."""
    return _PAGES.get_template("report.html.jinja").render(title=title, lead=lead, tiles=tiles, sections=sections) + "\n"


def paragraph(text: str, kind: str = "") -> Markup:
    """Return a paragraph of text."""
    return Markup('<p class="{}">{}</p>').format(kind, escape(text)) if text else Markup()


def moment(seconds: float) -> Cell:
    """Return a time to the minute, as a cell that does not wrap."""
    return [write_time(round(seconds))[:16].replace("T", " ")]
