"""Functional graphs, compared with following each path step by step."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detector.graph import functional_graph as ways
from detector.graph.functional_graph import FREE, STUCK, UNKNOWN, follow


def plain(after: list[int], fates: list[int]) -> list[int]:
    """The fate of each party, computed step by step."""
    found = []
    for at, fate in enumerate(fates):
        here, seen = at, set[int]()
        while fates[here] == UNKNOWN and here not in seen:
            seen.add(here)
            here = after[here]
        found.append(fate if fate != UNKNOWN else STUCK if here in seen else fates[here])
    return found


def followed(after: list[int], fates: list[int]) -> list[int]:
    known = np.array(fates, np.int8)
    follow(np.array(after, np.intp), known)
    assert UNKNOWN not in known.tolist()
    found: list[int] = known.tolist()
    return found


@settings(max_examples=300, deadline=None)
@given(st.integers(1, 60), st.randoms(use_true_random=False), st.sampled_from([0.0, 0.1, 0.5]))
def test_every_fate_equals_that_found_by_following_the_graph(size: int, rng: random.Random, ends: float) -> None:
    after = [rng.randrange(size) for _ in range(size)]
    fates = [rng.choice([STUCK, FREE]) if rng.random() < ends else UNKNOWN for _ in range(size)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ways, "DOUBLING_PARTIES_MAX", rng.choice([4, 9, 100]))
        patch.setattr(ways, "WALKER_SHARE", rng.choice([2, 3, 8]))
        patch.setattr(ways, "LOOKAHEAD_STEPS_MAX", rng.choice([1, 8]))
        assert followed(after, fates) == plain(after, fates)


@pytest.mark.parametrize("kind", ["one way", "one ring", "rings of 3", "trees", "a way into a ring"])
def test_many_parties(kind: str) -> None:
    size = 20_000
    rng = random.Random(kind)
    place = rng.sample(range(size), size)
    line = {
        "one way": [*range(1, size), size - 1],
        "one ring": [(at + 1) % size for at in range(size)],
        "rings of 3": [at // 3 * 3 + (at + 1) % 3 if at < size - 2 else at for at in range(size)],
        "trees": [rng.randrange(at) if at else 0 for at in range(size)],
        "a way into a ring": [*range(1, size), size - 100],
    }[kind]
    after, fates = [0] * size, [UNKNOWN] * size
    for at, to in enumerate(line):
        after[place[at]] = place[to]
        if at == to:
            fates[place[at]] = FREE
    found = followed(after, fates)
    assert found.count(FREE) == {"one way": size, "trees": size, "rings of 3": 2}.get(kind, 0)
