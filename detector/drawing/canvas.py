"""Writes SVG as elements of the standard library's ElementTree, so that nothing needs manual escaping."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

INVALID = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
"""Characters that are invalid in XML."""
NAMESPACE = "http://www.w3.org/2000/svg"

Child = ET.Element | str


def element(name: str, *children: Child, **attributes: str | float) -> ET.Element:
    """Make an element with children (text and elements, in order) and attributes (``font_size`` becomes ``font-size``).

    Examples
    --------
    >>> written(element("text", "a < b", x=1.25, font_size=12, class_="small"))
    '<text x="1.2" font-size="12" class="small">a &lt; b</text>'
    """
    made = ET.Element(name, {key.strip("_").replace("_", "-"): _value(value) for key, value in attributes.items()})
    last: ET.Element | None = None
    for child in children:
        if not isinstance(child, str):
            made.append(child)
            last = child
        elif last is None:
            made.text = (made.text or "") + INVALID.sub("?", child)
        else:
            last.tail = (last.tail or "") + INVALID.sub("?", child)
    return made


def document(width: float, height: float, *children: Child, **attributes: str | float) -> str:
    """A complete SVG document of ``width`` by ``height`` pixels."""
    box = {"xmlns": NAMESPACE, "viewBox": f"0 0 {width:.0f} {height:.0f}", "width": f"{width:.0f}", "height": f"{height:.0f}"}
    return written(element("svg", *children, **box, **attributes)) + "\n"


def arrow_head(name: str, colour: str, size: int) -> ET.Element:
    """A marker of ``size`` pixels for the end of lines, referenced as ``url(#name)``."""
    shape = element("path", d="M0 0L10 5L0 10z", fill=colour)
    box: dict[str, str | float] = {"viewBox": "0 0 10 10", "refX": 9, "refY": 5, "markerWidth": size, "markerHeight": size}
    return element("marker", shape, id=name, orient="auto-start-reverse", **box)


def written(made: ET.Element) -> str:
    """The element as text."""
    return ET.tostring(made, encoding="unicode")


def _value(value: str | float) -> str:
    if isinstance(value, str):
        return INVALID.sub("?", value)
    return str(value) if isinstance(value, int) else f"{value:.1f}"
