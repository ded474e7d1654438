"""Each rule broken on purpose is caught by a promise that the mutant names, and the original code is restored.

Most mutants are hunted through a few seeded worlds. For each of the others, which need thousands, the world that caught it is
pinned (``pinned/mutant-*.json``; ``--rewrite-transcripts`` hunts again and pins). None is left out.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from detector.simulator import run
from detector.simulator.mutants.hunt import Break, MisfitError, Mutant, broken, caught_by, hunt
from detector.simulator.mutants.table import MUTANTS
from detector.simulator.plans import recipes
from detector.simulator.run import Run
from stilltrue.protocol.recorder import Recorder
from tests.simulator.plan_json import plan_from_json, plan_to_json

QUICK_WORLDS_MAX = 30
PINNED = Path(__file__).with_name("pinned")


def pin_of(mutant: Mutant) -> Path:
    return PINNED / f"mutant-{mutant.name.replace(' ', '-')}.json"


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda one: one.name)
def test_the_mutant_is_caught(mutant: Mutant, request: pytest.FixtureRequest) -> None:
    pin = pin_of(mutant)
    if request.config.getoption("--rewrite-transcripts"):
        pin_anew(mutant, pin)
    if not pin.exists():
        assert hunt(mutant, worlds_max=QUICK_WORLDS_MAX) is not None
        return
    plan = plan_from_json(pin.read_text(encoding="utf-8"))
    assert Run(plan).play().breaches == (), "the right code breaks a promise there, too"
    assert caught_by(mutant, plan), "not caught in its world any more: hunt for another with --rewrite-transcripts"


def pin_anew(mutant: Mutant, pin: Path) -> None:
    pin.unlink(missing_ok=True)
    caught = hunt(mutant)
    assert caught is not None
    if caught.worlds > QUICK_WORLDS_MAX:
        pin.write_text(plan_to_json(recipes.plan(caught.name, caught.seed)), encoding="utf-8")


def test_every_pinned_world_is_some_mutant_s() -> None:
    assert {pin_of(mutant) for mutant in MUTANTS} >= set(PINNED.glob("mutant-*.json"))


def crashes(_right: Any) -> Any:
    def crash(*_: Any, **__: Any) -> None:
        raise KeyError("no such thing")

    return crash


def is_nothing(_right: Any) -> Any:
    return lambda *_: None


@pytest.mark.parametrize(
    ("attribute", "by", "message"),
    [
        ("coloured", crashes, "in world pools, seed 4: KeyError"),
        ("marked", is_nothing, "noticed by 'live', not by safe"),
        ("recoloured", is_nothing, "Recorder has no recoloured of its own"),
    ],
)
def test_a_mutant_that_does_not_fit_is_an_error_and_not_a_catch(attribute: str, by: Any, message: str) -> None:
    breaks = (Break(owner=Recorder, attribute=attribute, by=by),)
    mutant = Mutant(rule="", name="a test's", breaks=breaks, worlds=("pools",), promises=frozenset({"safe"}))
    with pytest.raises(MisfitError, match=message):
        hunt(mutant, worlds_max=20)


def test_the_original_code_is_restored() -> None:
    right = Recorder.__dict__["coloured"]
    with broken(MUTANTS[0]):
        assert Recorder.__dict__["coloured"] is not right
    assert Recorder.__dict__["coloured"] is right
    assert run.play("tokens", 3).breaches == ()
