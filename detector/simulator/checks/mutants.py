"""Mutants: each rule broken on purpose, and how many worlds it takes until the oracle, or a check of our own, notices.

A mutant replaces a function of the real code while the hunt lasts. If one is never caught, the worlds are too tame.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import count, islice
from typing import Any

from detector.simulator import run
from detector.simulator.checks import mutant_parts as parts
from detector.simulator.world import recipes

WORLDS_MAX = 20_000

Breaking = Callable[[Any], Any]
"""From a function of the real code to a wrong one in its place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Break:
    """One function to replace: ``attribute`` of ``owner`` (a class or module)."""

    owner: Any
    attribute: str
    by: Breaking


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """A rule (of DESIGN.md section 3, or the section named), how it is broken, and the worlds in which it matters."""

    rule: str
    name: str
    breaks: tuple[Break, ...]
    worlds: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Caught:
    """After how many worlds a mutant was caught, by which promise, and the seed."""

    worlds: int
    promise: str
    name: str
    seed: int


def hunt(mutant: Mutant, *, worlds_max: int = WORLDS_MAX) -> Caught | None:
    """Run seeded worlds of the mutant until one breaks a promise; None when none of ``worlds_max`` does."""
    with broken(mutant):
        for number, (name, seed) in enumerate(islice(_worlds(mutant.worlds), worlds_max), start=1):
            try:
                breaches: Sequence[str] = run.play(name, seed).breaches
            except Exception as error:  # noqa: BLE001  (a crash of the broken code is noticed, too)
                breaches = (f"{type(error).__name__}: {error}",)
            if breaches:
                return Caught(worlds=number, promise=breaches[0].split(":")[0], name=name, seed=seed)
    return None


@contextmanager
def broken(mutant: Mutant) -> Iterator[None]:
    """The real code with the mutant's functions in it; the right ones come back at the end."""
    with ExitStack() as stack:
        for one in mutant.breaks:
            original = one.owner.__dict__[one.attribute]
            setattr(one.owner, one.attribute, one.by(original))
            stack.callback(setattr, one.owner, one.attribute, original)
        yield


def _worlds(names: Sequence[str]) -> Iterator[tuple[str, int]]:
    for name in names:
        if name not in recipes.RECIPES:
            raise KeyError(name)
    return ((name, seed) for seed in count() for name in names)


def _mutant(rule: str, name: str, worlds: str, *breaks: tuple[Any, str, Breaking]) -> Mutant:
    return Mutant(
        rule=rule,
        name=name,
        breaks=tuple(Break(owner=owner, attribute=attribute, by=by) for owner, attribute, by in breaks),
        worlds=tuple(worlds.split()),
    )


MUTANTS: tuple[Mutant, ...] = (
    _mutant("1", "the colour is ignored", "tokens fans pools", (parts.Recorder, "coloured", parts.nothing)),
    _mutant(
        "2",
        "a process cuts after it has handled the message",
        "tokens fans pools",
        (parts.Recorder, "arrived", parts.arrives_then_cuts),
        (parts.Recorder, "settled", parts.settles_then_cuts),
    ),
    _mutant("2", "a cut serves earlier snapshots too", "failures tokens", (parts.Recorder, "_cut", parts.serves_all_before)),
    _mutant("3", "the floor is too high", "pools fans tokens", (parts.Recorder, "_stamp", parts.high_floor)),
    _mutant("3", "the server forgets what it has answered", "tokens pools", (parts.CallerMemory, "answered", parts.nothing)),
    _mutant("4", "a reply in transit is a wait", "tokens pools", (parts.Channels, "__init__", parts.sees_no_reply)),
    _mutant(
        "4", "a call behind a full pool waits for its first worker only", "pools", (parts.Channels, "_held", parts.first_worker)
    ),
    _mutant("4", "a full pool is never full", "pools", (parts.PoolView, "full", parts.never)),
    _mutant("4", "who has answered before may have it", "pools fans", (parts.Channels, "_unseen", parts.busy_like_the_others)),
    _mutant(
        "4", "a request item in transit is a wait", "streams", (parts.Resolution, "_next_item", parts.next_item_counts_no_items)
    ),
    _mutant("4", "a reply item in transit is a wait", "streams", (parts.Channels, "place", parts.reply_counts_no_items)),
    _mutant(
        "4", "no copy is in transit while a server has another", "hedges", (parts.Channels, "_hedged", parts.all_is_arrived)
    ),
    _mutant("4", "a server that has a call was never left behind", "repeats", (parts.Channels, "_held", parts.never_repeated)),
    _mutant("4", "who has lost its caller is still waited for", "repeats", (parts.ServerCall, "hang_up", parts.always_heard)),
    _mutant("5", "the last call sent counts as an orphan", "pools", (parts.Channels, "orphans", parts.strict_orphans)),
    _mutant("6", "an explicit marker is ignored", "pools", (parts.Recorder, "marked", parts.nothing)),
    _mutant("7", "facts change one step after their message", "tokens", (parts.Recorder, "sent", parts.sends_then_changes)),
    _mutant("7", "what was taken is counted as still in transit", "tokens", (parts.Recorder, "took", parts.takes_in_two)),
    _mutant("8", "a failed call is over", "failures deadlines", (parts.Recorder, "settled", parts.no_doubt)),
    _mutant(
        "8", "a doubt is settled by no record", "failures deadlines", (parts.Resolution, "settled_doubts", parts.settles_all)
    ),
    _mutant("8", "a failed call is still waited for", "deadlines failures", (parts.Recorder, "settled", parts.waits_on)),
    _mutant("section 3", "uncoloured waits need no confirmation", "store", (parts.deadlock, "confirmed", parts.all_vouched)),
    _mutant("section 3", "an overlapping snapshot confirms", "store", (parts.Initiator, "_finish", parts.any_previous)),
    _mutant("cancellation", "no caller ever cancels", "cancels", (parts.Cancellation, "ways", parts.never_cancelled)),
    _mutant(
        "cancellation 2",
        "who waits for a call is never cancelled",
        "cancels",
        (parts.Cancellation, "_callers", parts.no_climbing),
    ),
    _mutant(
        "cancellation 3",
        "a call that was given up is served for ever",
        "cancels",
        (parts.Cancellation, "_callers", parts.cancelled_is_on),
    ),
    _mutant(
        "section 4",
        "a reactive process that serves is idle",
        "failures deadlines",
        (parts.Recorder, "_activity", parts.reactive_is_idle),
    ),
    _mutant("section 5", "a deadline is for ever", "deadlines", (parts.resolution, "_wait", parts.no_deadline)),
    _mutant("section 5", "any of several is all of them", "fans", (parts.resolution, "_some", parts.all_of_them)),
    _mutant("section 5", "all of several is any of them", "fans", (parts.Resolution, "_resolve", parts.any_of_them)),
    _mutant("section 5", "a lock with shares left is waited for", "store", (parts.Resolution, "_resource", parts.any_holder)),
    _mutant("section 6", "the missing are free", "failures churn", (parts.Snapshot, "of_missing", parts.none_missing)),
    _mutant("section 6", "the missing never move", "failures", (parts.Reduction, "further", parts.releases_nobody)),
    _mutant("section 6", "a stale report counts", "failures tokens fans", (parts.Initiator, "reported", parts.takes_stale)),
)
