"""Cures in worlds: their previews are compared with their effects, often enough to be meaningful."""

from __future__ import annotations

import pytest

from detector.simulator import run
from detector.simulator.plans import recipes
from detector.simulator.run import Run

WORLDS = 60


@pytest.mark.longer
def test_previews_match_the_effects_on_cancelled_tasks_and_on_threads_that_continue() -> None:
    results = [run.play("cures", seed, story=True) for seed in range(WORLDS)]
    assert [result.breaches for result in results if result.breaches] == []
    assert sum(result.tally.cures for result in results) > WORLDS // 12, "the worlds are too simple"
    story = "\n".join(line for result in results for line in result.story)
    assert "an operator aborts the victims of a deadlock" in story
    assert "serves is aborted" in story
    assert "is cancelled" in story


def test_without_a_deadlock_there_is_nothing_to_cure() -> None:
    assert Run(recipes.plan("cures", 0)).watch.curable() == []
