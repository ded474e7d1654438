"""What the archive's tests share: random snapshots with the service's verdicts on them."""

from __future__ import annotations

import pytest

from detector.core.registry import find_predicate, predicate_names
from tests.synthetic.random_snapshots import Judged, WorldShape, judged, random_snapshots

SHAPES = (WorldShape(), WorldShape(processes=3, calls=3, missing_share=0.2), WorldShape(calls=20))


@pytest.fixture(scope="session")
def run() -> Judged:
    """Of every predicate, on snapshots of three shapes."""
    made = [each for seed, shape in enumerate(SHAPES) for each in random_snapshots(seed, 60, shape)]
    return judged(made, [find_predicate(name) for name in predicate_names()])
