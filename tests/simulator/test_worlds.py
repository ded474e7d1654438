"""Seeded worlds: thousands of runs of the real recorder, initiator and predicates without a broken promise."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from detector.simulator import run
from detector.simulator.campaign import campaign, jobs
from detector.simulator.plans import recipes
from detector.simulator.run import Run
from stilltrue.model import Holds
from tests.simulator.plan_json import plan_from_json, plan_to_json

WORLDS = 30
"""Of each kind; `make prove` plays 100,000."""

PINNED = Path(__file__).with_name("pinned")
"""Worlds that once broke a promise, whole: their seeds grow others when a recipe draws otherwise."""

NEIGHBOURS = 3
"""In how many orders of events each is run again, its own first."""


@pytest.mark.parametrize("name", sorted(recipes.RECIPES))
def test_every_promise_is_kept(name: str) -> None:
    kinds: dict[Holds, int] = dict.fromkeys(Holds, 0)
    for seed in range(WORLDS):
        result = run.play(name, seed)
        assert result.breaches == (), f"replay with: stilltrue simulate --world {name} --seed {seed} --trace"
        for holds, count in result.tally.verdicts["deadlock"].items():
            kinds[holds] += count
    assert min(kinds[Holds.TRUE], kinds[Holds.FALSE]) > WORLDS // 6, "the worlds are too tame"


@pytest.mark.parametrize("pin", sorted(PINNED.glob("[!m]*-*.json")), ids=lambda path: path.stem)
def test_worlds_that_once_broke_a_promise_keep_it(pin: Path) -> None:
    plan = plan_from_json(pin.read_text(encoding="utf-8"))
    for seed in range(plan.seed, plan.seed + NEIGHBOURS):
        assert Run(replace(plan, seed=seed)).play().breaches == ()


@pytest.mark.parametrize("name", sorted(recipes.RECIPES))
def test_a_plan_survives_the_round_trip_to_json(name: str) -> None:
    for seed in range(20):
        plan = recipes.plan(name, seed)
        assert plan_from_json(plan_to_json(plan)) == plan


def test_a_seed_replays_the_same_story() -> None:
    first, second = (run.play("failures", 7, story=True) for _ in range(2))
    assert first.story == second.story
    assert len(first.story) > 20


def test_a_world_of_many_processes_ends() -> None:
    result = run.play("fans", 1, processes=120)
    assert result.breaches == ()
    assert result.tally.snapshots >= 4


def test_a_large_world_comes_to_rest() -> None:
    result = run.play("bounds", 13702)
    assert result.breaches == ()
    assert result.tally.steps > 10_000, "its recipe draws otherwise by now: look for another"


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
