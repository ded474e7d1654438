"""Each rule broken on purpose is noticed within few worlds; and the right code comes back afterwards."""

from __future__ import annotations

import pytest

from detector.simulator import run
from detector.simulator.checks.mutants import MUTANTS, Mutant, broken, hunt
from stilltrue.protocol.recorder import Recorder

QUICK_WORLDS_MAX = 120
SLOW = {
    "a failed call is over",
    "who has answered before may have it",
    "uncoloured waits need no confirmation",
    "an overlapping snapshot confirms",
    "a reactive process that serves is idle",
    "the missing are free",
    "a reply item in transit is a wait",
    "a call that was given up is served for ever",
    "a doubt is settled by no record",
    "a server that has a call was never left behind",
    "who has lost its caller is still waited for",
}
"""Caught too, but only after hundreds of worlds or more: `stilltrue simulate --mutants`, and the table in docs/proofs.md."""


@pytest.mark.parametrize("mutant", [one for one in MUTANTS if one.name not in SLOW], ids=lambda one: one.name)
def test_the_mutant_is_caught(mutant: Mutant) -> None:
    assert hunt(mutant, worlds_max=QUICK_WORLDS_MAX) is not None


def test_the_slow_ones_are_mutants_that_there_are() -> None:
    assert {one.name for one in MUTANTS} >= SLOW


def test_the_right_code_comes_back() -> None:
    right = Recorder.__dict__["coloured"]
    with broken(MUTANTS[0]):
        assert Recorder.__dict__["coloured"] is not right
    assert Recorder.__dict__["coloured"] is right
    assert run.play("tokens", 3).breaches == ()
