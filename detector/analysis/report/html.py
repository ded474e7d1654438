"""The report's page and its parts; the template escapes every text."""

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
    """A cell with a name from a program."""

    code: str


@dataclass(frozen=True, slots=True)
class Folded:
    """A cell that opens to show the lines ``inside``."""

    text: str
    inside: Sequence[str]


Cell = str | Code | Folded | Sequence[str]
"""A text; a name; lines that are folded away; or words that are not broken, with commas between."""


@dataclass(frozen=True, slots=True)
class Tile:
    """A number at the top of the page; ``kind``: ``bad``, ``warn`` or nothing."""

    kind: str
    value: str
    name: str


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under ``heads``; without any, the sentence ``none``."""

    heads: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    none: str


@dataclass(frozen=True, slots=True)
class Picture:
    """An SVG document that opens under a title. It stands apart, as an image: names within one do not meet another's."""

    title: str
    svg: str
    shown: bool = False

    @property
    def source(self) -> str:
        """The image's address: itself."""
        return f"data:image/svg+xml;base64,{b64encode(self.svg.encode()).decode()}"


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the page; its ``parts`` are tables, pictures, and HTML of our own (plots)."""

    title: str
    lead: str
    parts: Sequence[Table | Picture | Markup]


def page(title: str, lead: str, tiles: Sequence[Tile], sections: Sequence[Section]) -> str:
    """The whole file."""
    return _PAGES.get_template("report.html.jinja").render(title=title, lead=lead, tiles=tiles, sections=sections) + "\n"


def paragraph(text: str, kind: str = "") -> Markup:
    """A paragraph of text."""
    return Markup('<p class="{}">{}</p>').format(kind, escape(text)) if text else Markup()


def moment(seconds: float) -> Cell:
    """To the minute, on one line."""
    return [write_time(round(seconds))[:16].replace("T", " ")]
