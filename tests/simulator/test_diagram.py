"""The space-time diagram: lanes, arrows, the cut, and in another colour exactly the messages in transit."""

from __future__ import annotations

import xml.etree.ElementTree as ET

from detector.simulator.diagram import Event, Kind, diagram
from stilltrue.model import ProcessName, SnapshotId

P, Q = ProcessName("p"), ProcessName("q <1>")
ONE = SnapshotId(1)


def sends(number: int, label: str = "", *, marker: bool = False) -> Event:
    return Event(process=P, kind=Kind.SEND, message=number, label=label, target=Q, marker=marker)


def receives(number: int, *, marker: bool = False) -> Event:
    return Event(process=Q, kind=Kind.RECEIVE, message=number, marker=marker)


def cuts(process: ProcessName) -> Event:
    return Event(process=process, kind=Kind.CUT, snapshot=ONE)


RUN = [
    sends(1, "early"),
    receives(1),
    sends(2, "crosses & arrives"),
    sends(3, "lost on the way"),
    cuts(P),
    sends(4, marker=True),
    sends(5, "late"),
    cuts(Q),
    receives(2),
    receives(4, marker=True),
    receives(5),
    Event(process=Q, kind=Kind.INTERNAL, label="thinks"),
]


def classes(svg: str) -> list[str]:
    root = ET.fromstring(svg)
    found = [one.get("class") or "" for one in root.iter() if one.tag.endswith(("line", "polyline"))]
    return [name for name in found if name != "lane"]


def test_the_picture_shows_lanes_messages_markers_and_the_cut() -> None:
    svg = diagram(RUN, snapshot=ONE, title="a < b")
    drawn = classes(svg)[:-4]  # the legend comes last
    assert drawn == ["message", "transit", "transit", "marker", "message", "cut"]
    texts = [one.text for one in ET.fromstring(svg).iter() if one.tag.endswith("text")]
    assert {"a < b", "p", "q <1>", "crosses & arrives", "thinks", "cut 1"} <= set(texts)


def test_nothing_is_in_transit_in_a_snapshot_that_made_no_cut() -> None:
    assert "transit" not in classes(diagram(RUN, snapshot=SnapshotId(2)))[:-4]


def test_without_a_cut_nothing_is_in_transit_and_there_is_no_line() -> None:
    svg = diagram([sends(1, "m"), receives(1)])
    assert classes(svg) == ["message", "message"]


def test_no_events_make_an_empty_picture() -> None:
    assert ET.fromstring(diagram([])).tag.endswith("svg")
