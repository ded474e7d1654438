"""The space-time diagram: the core comes first, the rest is folded, messages in transit cross the cut, nothing is invented."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree as ET

import pytest

from detector.core.document.reader import read_document
from detector.drawing.draw import Format, draw
from detector.drawing.spacetime import ARROWS_MAX, LINES_MAX
from detector.predicates.deadlock import Deadlock

ENDED = "2026-11-20T14:02:11Z"
SVG = "{http://www.w3.org/2000/svg}"
ODD = "<script>&\u202e"


def diagram(document: dict[str, Any]) -> ET.Element:
    snapshot = read_document({"ended": ENDED, **document})
    return ET.fromstring(draw(snapshot, Deadlock().evaluate(snapshot), Format.SPACE_TIME))


def wait(waiter: str, target: str, since: str = "2026-11-20T14:02:08Z") -> dict[str, Any]:
    return {"waiter": waiter, "among": [target], "since": since}


def words(root: ET.Element) -> list[str]:
    return [text.text or "" for text in root.iter(f"{SVG}text")]


def paths(root: ET.Element, marker: str) -> list[list[float]]:
    """The start and end of each arrow of a kind: x, y, x, y."""
    found = [path for path in root.iter(f"{SVG}path") if path.get("marker-end") == f"url(#{marker})"]
    return [[float(part) for part in (path.get("d") or "").replace("M", "").replace("L", " ").split()] for path in found]


def test_a_cycle_of_calls_and_a_message_that_crosses_the_cut() -> None:
    root = diagram({
        "processes": {"idle": {"activity": "idle"}},
        "waits": [wait("a/X#1", "b/Y#1"), wait("b/Y#1", "a/X#1", "2026-11-20T14:02:09Z"), wait("c/Z#1", "a/X#1")],
        "in_transit": [{"source": "b", "target": "c"}],
    })  # fmt: skip
    said = words(root)
    assert max(map(len, said[1:4])) <= 50, "a telephone shows the first 50 letters of a title"
    assert said.index("a") < said.index("b") < said.index("c") < said.index("1 more")
    (cut,) = [float(line.get("x1") or 0) for line in root.iter(f"{SVG}line") if line.get("stroke-dasharray") == "6 4"]
    assert len(paths(root, "core")) == 2
    assert len(paths(root, "other")) == 1
    for x, _, to, _ in paths(root, "core") + paths(root, "other"):
        assert x < to < cut, "received before the cut"
    ((x, _, to, _),) = paths(root, "transit")
    assert x < cut < to
    assert {"3.0 s", "2.0 s", "the cut"} <= set(said)


def test_only_the_involved_of_two_hundred_processes_have_lines_core_first() -> None:
    waits = [wait("p-150/A#1", "p-151/B#1"), wait("p-151/B#1", "p-150/A#1")]
    waits += [
        wait(f"p-{at}/Get#{call}", "p-150/A#1", f"2026-11-20T14:01:{at % 60:02}Z") for at in range(100) for call in range(9)
    ]
    root = diagram({"processes": {f"p-{at}": {} for at in range(200)}, "waits": waits})
    names = [word for word in words(root) if word.startswith("p-")]
    assert names[:2] == ["p-150", "p-151"]
    assert len(names) == LINES_MAX - 1
    assert f"{200 - len(names)} more" in words(root)
    assert len(list(root.iter(f"{SVG}path"))) < ARROWS_MAX + 10
    assert float(root.get("height") or 0) < 1100


@pytest.mark.parametrize(
    "document",
    [{}, {"waits": [{"waiter": f"{ODD}/x", "among": [f"{ODD}/x"]}]}, {"missing": ["a"], "in_transit": [{"source": "b"}]}],
)
def test_nothing_odd_names_and_unknown_targets_are_drawn(document: dict[str, Any]) -> None:
    assert "the cut" in words(diagram(document))
