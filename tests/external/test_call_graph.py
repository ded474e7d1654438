"""Worlds made from the call graph of 1,238 real services: right at every load, and drawn so that a person can read it."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from detector.core.document.reader import read_document
from detector.drawing.draw import Format, draw
from detector.drawing.scene import BOXES_MAX, Role, scene_of
from detector.predicates.deadlock import Deadlock
from stilltrue.model import Holds
from tests.external.shared import published

Calls = dict[str, list[str]]


@pytest.fixture(scope="module")
def calls() -> Calls:
    """Which services each service calls."""
    found: Calls = {}
    for link in json.loads(published("data/jaeger-dependencies-large.json").read_text(encoding="utf-8")):
        found.setdefault(link["parent"], []).append(link["child"])
        found.setdefault(link["child"], [])
    return found


def world(calls: Calls, load: float, workers: int, seed: int) -> dict[str, Any]:
    """Every service a pool of ``workers``; a share ``load`` of the workers wait for one of a called service's workers."""
    rng = random.Random(seed)
    waits = []
    for service in sorted(calls):
        for at in range(workers):
            if calls[service] and rng.random() < load:
                called = rng.choice(calls[service])
                among = [f"{called}/Call#{worker}" for worker in range(workers)]
                what = f"a worker of {called}'s pool"
                waits.append({"waiter": f"{service}/Call#{at}", "among": rng.sample(among, workers), "what": what})
    return {"waits": rng.sample(waits, len(waits))}


def plain_remainder(document: dict[str, Any]) -> list[str]:
    """Frees, round by round, every party that waits for a free one."""
    among = {wait["waiter"]: wait["among"] for wait in document["waits"]}
    stuck = set(among)
    while freed := {waiter for waiter in stuck if any(target not in stuck for target in among[waiter])}:
        stuck -= freed
    return sorted(stuck)


@pytest.mark.parametrize("load", [0.5, 0.8, 0.9, 0.95, 1.0])
@pytest.mark.parametrize("workers", [1, 2, 4])
def test_verdicts_on_worlds_of_pools_are_right_at_every_load(calls: Calls, load: float, workers: int) -> None:
    stuck_worlds = 0
    for seed in range(4):
        document = world(calls, load, workers, seed)
        verdict = Deadlock().evaluate(read_document(document))
        left = plain_remainder(document)
        assert list(verdict.remainder) == left, f"seed {seed}"
        assert (verdict.holds is Holds.TRUE) == bool(left)
        assert sorted((*verdict.core, *verdict.behind)) == left
        stuck_worlds += bool(left)
    assert stuck_worlds == 4 or workers > 1 or load < 1.0, "pools of one, all busy, must close some ring"


def test_the_picture_of_a_stuck_world_is_small_enough_to_read(calls: Calls) -> None:
    stuck = (read_document(world(calls, 1.0, 2, seed)) for seed in range(40))
    snapshot, verdict = next((each, found) for each in stuck if (found := Deadlock().evaluate(each)).holds is Holds.TRUE)
    scene = scene_of(snapshot, verdict)
    assert len(scene.boxes) <= BOXES_MAX
    assert {party for box in scene.boxes for party in box.parties} >= set(verdict.witness.parties)
    assert "more behind it" in scene.left_out
    assert {box.role for box in scene.boxes} == {Role.CORE, Role.BEHIND}, "who is not stuck is another matter"
    assert {box.name for box in scene.boxes} == {arrow.waiter for arrow in scene.arrows}, "a box without an arrow says nothing"
    assert len(draw(snapshot, verdict, Format.SVG)) < 60_000
