"""Pictures: readable by other programs, with the core highlighted, and each wait with its purpose and age."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from xml.etree import ElementTree as ET

import networkx as nx
import pytest

from detector.core.document.reader import read_document
from detector.core.snapshot import Snapshot
from detector.drawing.draw import Format, draw
from detector.drawing.exports import to_networkx
from detector.drawing.layout import BOX_HEIGHT, BOX_WIDTH, laid_out
from detector.drawing.scene import BOXES_MAX, scene_of
from detector.drawing.svg import NAME_MAX
from detector.predicates.deadlock import Deadlock
from detector.predicates.evidence.core_components import narrowed
from stilltrue.model import PartyName

ODD = 'we"ird/<&>\\party\x01'
ENDED = "2026-11-20T14:02:11Z"


def pools(size: int = 4) -> Snapshot:
    """Three pools that wait for each other, requests queued behind one of them, and a party whose name needs escaping."""
    waits = [
        {
            "waiter": f"{here}/Call#{at}",
            "among": [f"{there}/Call#{other}" for other in range(size)],
            "what": f"a worker of {there}'s pool ({size} of {size} busy)",
            "since": "2026-11-20T14:02:08.25Z",
        }
        for here, there in (("orders", "stock"), ("stock", "billing"), ("billing", "orders"))
        for at in range(size)
    ]
    waits += [{"waiter": f"orders/queued#{at}", "among": ["orders/Call#0"]} for at in range(9)]
    return read_document({"waits": [*waits, {"waiter": ODD, "among": ["orders/Call#1"]}], "ended": ENDED})


def drawn(snapshot: Snapshot, form: Format) -> str:
    return draw(snapshot, Deadlock().evaluate(snapshot), form)


def test_parties_that_differ_only_in_name_share_a_box() -> None:
    snapshot = pools()
    scene = scene_of(snapshot, Deadlock().evaluate(snapshot))
    assert [box.name for box in scene.boxes if box.role.value == "core"] == [
        "billing/Call#0 +3",
        "orders/Call#0 +3",
        "stock/Call#0 +3",
    ]
    assert sum(arrow.core for arrow in scene.arrows) == 3
    assert "2.8 s for a worker of stock's pool (4 of 4 busy): 1 of 4" in {arrow.label for arrow in scene.arrows}


def test_a_box_of_several_is_named_after_its_victim() -> None:
    snapshot = pools()
    verdict = Deadlock().evaluate(snapshot)
    for victim in (PartyName("stock/Call#2"), PartyName("stock/Call#0")):
        boxes = scene_of(snapshot, replace(verdict, victims=(victim,))).boxes
        assert [box.name for box in boxes if box.victim] == [f"{victim} +3"]


def test_svg_is_well_formed_with_core_labels_and_cure() -> None:
    text = drawn(pools(), Format.SVG)
    root = ET.fromstring(text)
    said = "\n".join(root.itertext())
    assert "2.8 s for a worker of stock's pool (4 of 4 busy): 1 of 4" in said
    assert "deadlock: true" in said
    assert "suggested victim" in said
    assert 'we"ird/<&>\\party?' in said
    assert text.count('stroke="#c0392b" stroke-width="1.8"') == 3


def test_boxes_of_one_processs_threads_have_names_that_differ_and_fit() -> None:
    names = [f"stock-7d9f8b6c5d-xkq2p/thread:Thread-{at} (order_for_ever)" for at in range(10, 14)]
    waits = [{"waiter": one, "among": [other]} for one, other in zip(names, names[1:] + names[:1], strict=True)]
    texts = [one.text or "" for one in ET.fromstring(drawn(read_document({"waits": waits}), Format.SVG)).iter() if one.text]
    labels = {re.sub("^\N{BALLOT X} ", "", text) for text in texts if "\N{HORIZONTAL ELLIPSIS}/thread:Thread-1" in text}
    assert len(labels) == 4
    assert all(label.startswith("stock") and len(label) <= NAME_MAX for label in labels)


def test_dot_quotes_every_name() -> None:
    text = drawn(pools(), Format.DOT)
    assert '"we\\"ird/<&>\\\\party' in text
    assert text.count("->") == len(scene_of(pools(), Deadlock().evaluate(pools())).arrows)
    for line in text.splitlines()[1:-1]:
        assert re.fullmatch(r'(?:[^"]|"(?:[^"\\]|\\.)*")*', line), line


def test_graphml_and_links_hold_the_whole_graph() -> None:
    snapshot = pools()
    whole = nx.parse_graphml(drawn(snapshot, Format.GRAPHML))
    links = nx.node_link_graph(json.loads(drawn(snapshot, Format.LINKS)), edges="links")
    for graph in (whole, links):
        assert len(graph) == len(snapshot.waits.names)
        assert graph.number_of_edges() == len(snapshot.waits.targets)
        assert graph.nodes["orders/Call#0"]["role"] == "core"
        assert graph.nodes["orders/queued#0"]["role"] == "behind"


def test_an_undetermined_picture_shows_no_party_as_healthy() -> None:
    snapshot = read_document({"waits": [{"waiter": "a/1", "among": ["gone/1"]}], "missing": ["gone"]})
    links = json.loads(drawn(snapshot, Format.LINKS))
    assert {node["role"] for node in links["nodes"]} == {"undetermined"}
    picture = drawn(snapshot, Format.SVG)
    assert "waiting, not known to be deadlocked" in picture
    assert "can be freed" not in picture


def test_to_networkx_marks_the_edges_of_one_wait() -> None:
    graph = to_networkx(pools().waits)
    edges = [said for _, _, said in graph.out_edges("orders/Call#0", data=True)]
    assert len({said["wait"] for said in edges}) == 1
    assert {(said["needs"], said["of"]) for said in edges} == {(1, 4)}


@pytest.mark.parametrize("size", [1, 2, 3, 5, 11, 30])
def test_no_two_boxes_touch(size: int) -> None:
    waits = [{"waiter": f"p{at}/x", "among": [f"p{(at + 1) % size}/x"]} for at in range(size)]
    waits += [{"waiter": f"q{at}/x", "among": ["p0/x"]} for at in range(7)]
    snapshot = read_document({"waits": waits})
    layout = laid_out(scene_of(snapshot, Deadlock().evaluate(snapshot)))
    places = sorted(layout.places.values())
    for at, (x, y) in enumerate(places):
        for other_x, other_y in places[at + 1 :]:
            assert abs(x - other_x) >= BOX_WIDTH or abs(y - other_y) >= BOX_HEIGHT


def test_a_picture_of_a_large_remainder_states_what_it_omits() -> None:
    waits = [{"waiter": f"p{at}/x", "among": [f"p{(at + 1) % 2}/x"]} for at in range(2)]
    waits += [{"waiter": f"q{at}/x", "among": ["p0/x"]} for at in range(500)]
    snapshot = read_document({"waits": waits})
    scene = scene_of(snapshot, Deadlock().evaluate(snapshot))
    assert len(scene.boxes) == BOXES_MAX
    assert [box.name for box in scene.boxes[:2]] == ["p0/x", "p1/x"]
    assert scene.left_out == f"not shown: {500 + 2 - BOXES_MAX} more behind it"


def test_a_party_that_waits_for_the_core_but_can_be_freed_is_not_drawn() -> None:
    waits = [{"waiter": "a/1", "among": ["b/1"]}, {"waiter": "b/1", "among": ["a/1"]}]
    waits += [{"waiter": "c/1", "among": ["a/1"]}, {"waiter": "d/1", "among": ["a/1", "free/1"]}]
    snapshot = read_document({"waits": waits})
    assert [box.name for box in scene_of(snapshot, Deadlock().evaluate(snapshot)).boxes] == ["a/1", "b/1", "c/1"]


def test_without_stuck_parties_the_picture_shows_movable_ones_and_their_waiters() -> None:
    waits = [{"waiter": f"a{at}/x", "among": [f"a{at + 1}/x"]} for at in range(40)]
    waits += [{"waiter": f"w{at:02}/{free}", "among": [f"z{free}/x"]} for at in range(9) for free in range(3)]
    snapshot = read_document({"waits": waits})
    scene = scene_of(snapshot, Deadlock().evaluate(snapshot))
    shown = {box.name for box in scene.boxes}
    assert {"a40/x", "z0/x", "z1/x", "z2/x"} <= shown
    assert {"w00/0", "w00/1", "w00/2", "a39/x"} <= shown
    assert shown == {name for arrow in scene.arrows for name in (arrow.waiter, arrow.target)}, "each box says something"


@pytest.mark.parametrize("form", list(Format))
def test_an_empty_snapshot_can_be_drawn(form: Format) -> None:
    assert drawn(read_document({}), form)


def test_a_picture_of_one_of_two_deadlocks_shows_only_that_one() -> None:
    waits = [("a/1", "b/1"), ("b/1", "a/1"), ("c/1", "d/1"), ("d/1", "c/1"), ("e/1", "d/1")]
    snapshot = read_document({"waits": [{"waiter": waiter, "among": [target]} for waiter, target in waits]})
    whole = Deadlock().evaluate(snapshot)
    own = narrowed(whole, snapshot, (PartyName("c/1"), PartyName("d/1")))
    assert (own.core, own.behind, own.victims) == (("c/1", "d/1"), ("e/1",), ("c/1",))
    scene = scene_of(snapshot, own)
    assert scene.subtitle == "2 parties wait for each other: c/1, d/1"
    assert sorted(box.name for box in scene.boxes) == ["c/1", "d/1", "e/1"]
    assert scene.left_out == "not shown: 2 in other deadlocks"
    first = scene_of(snapshot, narrowed(whole, snapshot, (PartyName("a/1"), PartyName("b/1"))))
    assert (first.subtitle, len(first.boxes)) == ("cycle: a/1 -> b/1 -> a/1", 2)
    assert narrowed(whole, snapshot, whole.core) is whole
    assert narrowed(whole, snapshot, ()) is whole
