"""Hunts mutants: breaks a rule on purpose, and counts the worlds until a promise catches it.

During the hunt a mutant replaces a function of the real code. If it is never caught, the worlds are too simple.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import count, islice
from typing import Any

from detector.simulator import run
from detector.simulator.plans import recipes
from detector.simulator.plans.plan import Plan

WORLDS_MAX = 20_000

Breaking = Callable[[Any], Any]
"""Takes a function of the real code and returns its broken replacement."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Break:
    """One function to replace: ``attribute`` of ``owner`` (a class or module)."""

    owner: Any
    attribute: str
    by: Breaking


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """A rule (of docs/design.md section 3, or of the section named), how it is broken, and the worlds in which it matters.

    ``promises``: one of them must catch the mutant. Anything else, especially a crash, means that the mutant no longer fits the
    code.
    """

    rule: str
    name: str
    breaks: tuple[Break, ...]
    worlds: tuple[str, ...]
    promises: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Caught:
    """A caught mutant: the number of worlds it took, the promise that caught it, and the last world and seed."""

    worlds: int
    promise: str
    name: str
    seed: int


class MisfitError(Exception):
    """A mutant that does not fit the code it breaks; it proves nothing and must be fixed."""


def hunt(mutant: Mutant, *, worlds_max: int = WORLDS_MAX) -> Caught | None:
    """Run seeded worlds with the mutant until one breaks a promise; None if none of ``worlds_max`` does.

    Raises
    ------
    MisfitError
        When the broken code crashes, or breaks a promise that the mutant does not name.
    """
    for number, (name, seed) in enumerate(islice(_worlds(mutant.worlds), worlds_max), start=1):
        promise = caught_by(mutant, recipes.plan(name, seed))
        if promise:
            return Caught(worlds=number, promise=promise, name=name, seed=seed)
    return None


def caught_by(mutant: Mutant, plan: Plan) -> str:
    """The promise that the mutant breaks in this world; empty if none. Raises MisfitError like :func:`hunt`."""
    about = f"{mutant.name!r} in world {plan.name}, seed {plan.seed}"
    with broken(mutant):
        try:
            breaches: Sequence[str] = run.Run(plan).play().breaches
        except Exception as error:
            raise MisfitError(f"{about}: {type(error).__name__}: {error}") from error
    promise = breaches[0].split(":")[0] if breaches else ""
    if promise and promise not in mutant.promises:
        raise MisfitError(f"{about}: noticed by {promise!r}, not by {' or '.join(sorted(mutant.promises))}")
    return promise


@contextmanager
def broken(mutant: Mutant) -> Iterator[None]:
    """Install the mutant's functions in the real code; the original ones are restored at the end."""
    with ExitStack() as stack:
        for one in mutant.breaks:
            if one.attribute not in one.owner.__dict__:
                raise MisfitError(f"{mutant.name!r}: {one.owner.__name__} has no {one.attribute} of its own")
            original = one.owner.__dict__[one.attribute]
            setattr(one.owner, one.attribute, one.by(original))
            stack.callback(setattr, one.owner, one.attribute, original)
        yield


def _worlds(names: Sequence[str]) -> Iterator[tuple[str, int]]:
    for name in names:
        if name not in recipes.RECIPES:
            raise KeyError(name)
    return ((name, seed) for seed in count() for name in names)
