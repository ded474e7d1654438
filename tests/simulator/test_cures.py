"""Cures in worlds: their previews are compared with what comes of them, often enough to mean something."""

from __future__ import annotations

from detector.simulator import run
from detector.simulator.plans import recipes
from detector.simulator.run import Run

WORLDS = 60


def test_previews_are_compared_with_what_comes_of_tasks_that_are_cancelled_and_threads_that_go_on() -> None:
    results = [run.play("cures", seed, story=True) for seed in range(WORLDS)]
    assert [result.breaches for result in results if result.breaches] == []
    assert sum(result.tally.cures for result in results) > WORLDS // 12, "the worlds are too tame"
    told = "\n".join(line for result in results for line in result.story)
    assert "an operator has the victims of a deadlock aborted" in told
    assert "serves is aborted" in told
    assert "is cancelled" in told


def test_without_a_deadlock_there_is_nothing_to_cure() -> None:
    assert Run(recipes.plan("cures", 0)).watch.curable() == []
