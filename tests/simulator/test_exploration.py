"""Every interleaving of small worlds, with the real code; none breaks a promise."""

from __future__ import annotations

import pytest

from detector.simulator.checks.exploration import SMALL_WORLDS, explore
from detector.simulator.mutants.hunt import broken
from detector.simulator.mutants.table import MUTANTS
from detector.simulator.plans.plan import Plan

STATES_MAX = 1_000
"""The smallest worlds are gone through whole; `stilltrue simulate --explore` does not stop at all."""

WHOLE = {"a call and its reply", "a worker that calls its own pool"}


@pytest.mark.parametrize("plan", SMALL_WORLDS, ids=lambda one: one.name)
def test_no_order_of_events_breaks_a_promise(plan: Plan) -> None:
    found = explore(plan, states_max=STATES_MAX)
    assert found.breaches == []
    assert found.whole or plan.name not in WHOLE
    assert found.states > 20


def test_exploration_finds_the_breach_when_colours_are_ignored() -> None:
    whole = explore(SMALL_WORLDS[0])
    assert whole.whole
    assert not whole.breaches
    with broken(MUTANTS[0]):
        assert explore(SMALL_WORLDS[0]).breaches
