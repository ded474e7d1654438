"""Seeded worlds: thousands of runs of the real recorder, initiator and predicates without one broken promise."""

from __future__ import annotations

import pytest

from detector.simulator import run
from detector.simulator.campaign import campaign, jobs
from detector.simulator.run import Run
from detector.simulator.world import recipes
from stilltrue.model import Holds

WORLDS = 200
"""Of each kind."""


@pytest.mark.parametrize("name", sorted(recipes.RECIPES))
def test_every_promise_is_kept(name: str) -> None:
    kinds: dict[Holds, int] = dict.fromkeys(Holds, 0)
    for seed in range(WORLDS):
        result = run.play(name, seed)
        assert result.breaches == (), f"replay with: stilltrue simulate --world {name} --seed {seed} --trace"
        for holds, count in result.tally.verdicts["deadlock"].items():
            kinds[holds] += count
    assert min(kinds[Holds.TRUE], kinds[Holds.FALSE]) > WORLDS // 6, "the worlds are too tame"


@pytest.mark.parametrize(
    ("name", "seed"),
    [
        ("hedges", 101158),
        ("hedges", 101548),
        ("hedges", 104788),
        ("tokens", 100325),
        ("churn", 78832),
        ("churn", 93052),
        ("repeats", 35712),
    ],
)
def test_what_once_broke_a_promise_keeps_it(name: str, seed: int) -> None:
    assert run.play(name, seed).breaches == ()


def test_a_seed_replays_the_same_story() -> None:
    first, second = (run.play("failures", 7, story=True) for _ in range(2))
    assert first.story == second.story
    assert len(first.story) > 20


def test_a_world_of_many_processes_ends() -> None:
    result = run.play("fans", 1, processes=120)
    assert result.breaches == ()
    assert result.tally.snapshots >= 4


def test_theorem_1_is_checked_in_one_seed_of_three() -> None:
    checked = [run.play("pools", seed).tally.theorems for seed in range(9)]
    assert sum(checked[0::3]) > 0
    assert sum(checked[1::3] + checked[2::3]) == 0


def test_a_campaign_takes_the_worlds_in_turn_and_keeps_their_order() -> None:
    todo = jobs([], range(2 * len(recipes.RECIPES)))
    ran = [job for chunk in campaign(todo) for job, _, breach in chunk if not breach]
    assert ran == todo
    assert [job.name for job in todo[: len(recipes.RECIPES)]] == list(recipes.RECIPES)


def test_an_unknown_world_is_named() -> None:
    with pytest.raises(KeyError, match="nowhere"):
        recipes.plan("nowhere", 1)


def test_the_oracle_s_complaint_is_the_run_s_breach() -> None:
    one = Run(recipes.plan("pools", 0))
    one.world.breach("said so")
    assert one.play().breaches[0] == "said so"
