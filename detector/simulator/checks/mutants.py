"""Mutants: each rule broken on purpose, and the number of worlds until the oracle or an assertion catches it.

A mutant replaces a function of the real code while the hunt lasts. If one is never caught, the worlds are too tame.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import count, islice
from typing import Any

from detector.simulator import run
from detector.simulator.checks import cure_mutant_parts as cure_parts
from detector.simulator.checks import mutant_parts as parts
from detector.simulator.plans import recipes
from detector.simulator.plans.plan import Plan

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
    """A rule (of docs/design.md section 3, or the section named), how it is broken, and the worlds in which it matters.

    ``promises``: one of them must be what notices it. Anything else, a crash above all, means that the mutant does not fit
    the code any more.
    """

    rule: str
    name: str
    breaks: tuple[Break, ...]
    worlds: tuple[str, ...]
    promises: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Caught:
    """After how many worlds a mutant was caught, by which promise, and the seed."""

    worlds: int
    promise: str
    name: str
    seed: int


class MisfitError(Exception):
    """A mutant that does not fit the code it breaks: it must be mended, for it proves nothing."""


def hunt(mutant: Mutant, *, worlds_max: int = WORLDS_MAX) -> Caught | None:
    """Run seeded worlds of the mutant until one breaks a promise; None when none of ``worlds_max`` does.

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
    """The promise that the mutant breaks in this world; empty when it keeps them all (MisfitError as for :func:`hunt`)."""
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
    """The real code with the mutant's functions in it; the right ones come back at the end."""
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


def _mutant(rule: str, name: str, worlds: str, promises: str, *breaks: tuple[Any, str, Breaking]) -> Mutant:
    return Mutant(
        rule=rule,
        name=name,
        breaks=tuple(Break(owner=owner, attribute=attribute, by=by) for owner, attribute, by in breaks),
        worlds=tuple(worlds.split()),
        promises=frozenset(promises.split(", ")),
    )


MUTANTS: tuple[Mutant, ...] = (
    _mutant(
        "1",
        "the colour is ignored",
        "tokens fans pools",
        "orphans, theorem 1, safe",
        (parts.Recorder, "coloured", parts.nothing),
    ),
    _mutant(
        "1",
        "a reply of a newer colour bears no stamp",
        "tokens fans pools",
        "orphans, theorem 1, safe",
        (parts.Recorder, "replied", parts.silent_once_known),
    ),
    _mutant(
        "2",
        "a process cuts after it has handled the message",
        "tokens fans pools",
        "orphans, theorem 1, safe",
        (parts.Recorder, "arrived", parts.arrives_then_cuts),
        (parts.Recorder, "settled", parts.settles_then_cuts),
    ),
    _mutant(
        "2",
        "a cut serves earlier snapshots too",
        "failures tokens",
        "orphans, theorem 1",
        (parts.Recorder, "_cut", parts.serves_all_before),
    ),
    _mutant("3", "the floor is too high", "pools fans tokens", "orphans, safe", (parts.Recorder, "sent", parts.high_floor)),
    _mutant(
        "3", "the server forgets what it has answered", "tokens pools", "safe", (parts.CallerMemory, "answered", parts.nothing)
    ),
    _mutant("4", "a reply in transit is a wait", "tokens pools", "safe", (parts.Channels, "__init__", parts.sees_no_reply)),
    _mutant(
        "4",
        "a call behind a full pool waits for its first worker only",
        "pools",
        "safe, exact",
        (parts.Channels, "_held", parts.first_worker),
    ),
    _mutant("4", "a full pool is never full", "pools", "sound", (parts.PoolView, "full", parts.never)),
    _mutant(
        "4",
        "who has answered before may have it",
        "pools fans",
        "safe, theorem 1, exact",
        (parts.Channels, "_unseen", parts.busy_like_the_others),
    ),
    _mutant(
        "4",
        "a request item in transit is a wait",
        "streams",
        "safe",
        (parts.Resolution, "_next_item", parts.next_item_counts_no_items),
    ),
    _mutant(
        "4", "a reply item in transit is a wait", "streams", "safe", (parts.Channels, "place", parts.reply_counts_no_items)
    ),
    _mutant(
        "4",
        "no copy is in transit while a server has another",
        "hedges",
        "safe",
        (parts.Channels, "_hedged", parts.all_is_arrived),
    ),
    _mutant(
        "4",
        "a server that has a call was never left behind",
        "repeats",
        "safe",
        (parts.Channels, "_held", parts.never_repeated),
    ),
    _mutant(
        "4", "who has lost its caller is still waited for", "repeats", "safe, sound", (parts.Recorder, "hung_up", parts.nothing)
    ),
    _mutant(
        "5", "the last call sent counts as an orphan", "pools", "orphans", (parts.Channels, "orphans", parts.strict_orphans)
    ),
    _mutant(
        "5",
        "of two that contradict each other both count",
        "forgeries",
        "orphans",
        (parts.assembler, "set_aside", parts.nobody),
    ),
    _mutant(
        "5",
        "not the most contradicted goes, but all who contradict it",
        "forgeries",
        "orphans",
        (parts.assembler, "set_aside", parts.every_server),
    ),
    _mutant("6", "an explicit marker is ignored", "pools", "live", (parts.Recorder, "marked", parts.nothing)),
    _mutant(
        "7", "facts change one step after their message", "tokens", "safe", (parts.Recorder, "sent", parts.sends_then_changes)
    ),
    _mutant("7", "what was taken is counted as still in transit", "tokens", "safe", (parts.Recorder, "_take", parts.nothing)),
    _mutant("8", "a failed call is over", "failures deadlines", "safe", (parts.Recorder, "settled", parts.no_doubt)),
    _mutant(
        "8",
        "a doubt is settled by no record",
        "failures deadlines",
        "safe",
        (parts.Resolution, "settled_doubts", parts.settles_all),
    ),
    _mutant(
        "8",
        "a failed call is still waited for",
        "deadlines failures",
        "safe, sound, exact",
        (parts.Recorder, "settled", parts.waits_on),
    ),
    _mutant("10", "nobody looks again", "store streams", "live", (parts.Watch, "_suspicion", parts.suspects_nobody)),
    _mutant("10", "a wait that changed is in force", "store", "safe", (parts.recorder, "_look_at", parts.all_unchanged)),
    _mutant(
        "cancellation", "no caller ever cancels", "cancels", "safe, exact", (parts.Cancellation, "ways", parts.never_cancelled)
    ),
    _mutant(
        "cancellation 2",
        "who waits for a call is never cancelled",
        "cancels",
        "exact, safe",
        (parts.Cancellation, "_callers", parts.no_climbing),
    ),
    _mutant(
        "cancellation 3",
        "a call that was given up is served for ever",
        "cancels",
        "safe, exact",
        (parts.Cancellation, "_callers", parts.cancelled_is_on),
    ),
    _mutant(
        "section 4",
        "a reactive process that serves is idle",
        "failures deadlines",
        "safe",
        (parts.Recorder, "_activity", parts.reactive_is_idle),
        (parts.Verifier, "_idleness", parts.never_doubted),
    ),
    _mutant("section 5", "a deadline is for ever", "deadlines", "safe", (parts.resolution, "_wait", parts.no_deadline)),
    _mutant(
        "section 5", "any of several is all of them", "fans", "safe, theorem 1", (parts.resolution, "_some", parts.all_of_them)
    ),
    _mutant(
        "section 5", "all of several is any of them", "fans", "exact, sound", (parts.Resolution, "_resolve", parts.any_of_them)
    ),
    _mutant(
        "section 5",
        "a lock with shares left is waited for",
        "store",
        "sound",
        (parts.Resolution, "_resource", parts.any_holder),
    ),
    _mutant("section 6", "the missing are free", "failures churn", "sound", (parts.Snapshot, "of_missing", parts.none_missing)),
    _mutant(
        "section 6", "the missing never move", "deadlines", "exact, safe", (parts.Reduction, "further", parts.releases_nobody)
    ),
    _mutant(
        "section 6",
        "a stale report counts",
        "failures tokens fans",
        "theorem 1, sound, orphans",
        (parts.Initiator, "reported", parts.takes_stale),
    ),
    _mutant(
        "clocks",
        "members' clocks are believed",
        "clocks",
        "safe, stable, live, sound",
        (parts.clocks, "in_detector_time", parts.believes_clocks),
    ),
    _mutant(
        "section 4",
        "who waits for a task is not heard of",
        "tasks",
        "exact, sound, live",
        (parts.Observation, "added_to", parts.unseen),
    ),
    _mutant("bounds", "doubts are dropped without a word", "bounds", "safe", (parts.Doubts, "dropped", parts.never)),
    _mutant(
        "bounds",
        "a caller is forgotten without a word",
        "bounds",
        "safe",
        (parts.Callers, "begin", parts.forgets_callers_quietly),
    ),
    _mutant(
        "bounds",
        "answers are forgotten without a word",
        "bounds",
        "safe",
        (parts.CallerMemory, "seen", parts.forgets_answers_quietly),
    ),
    _mutant(
        "section 6",
        "who is lost is a member no more",
        "detectors",
        "safe, sound",
        (parts.Initiator, "lost", parts.lost_is_gone),
    ),
    _mutant(
        "scopes",
        "who is outside a group is as stuck as who is in it",
        "scopes",
        "safe",
        (parts.scope, "narrowed", parts.all_inside),
    ),
    _mutant(
        "lost-message",
        "messages are counted while somebody works",
        "counts",
        "safe, live",
        (parts.LostMessage, "evaluate", parts.counts_at_work),
    ),
    _mutant(
        "phase-ended",
        "who works in a phase is through with it",
        "counts",
        "safe, live",
        (parts.PhaseEnded, "_through", parts.through_at_work),
    ),
    _mutant(
        "cancellation 6",
        "a task that a handler awaits is not cancelled with it",
        "jobs",
        "safe, exact, live",
        (parts.Cancellation, "_may_be_cancelled", parts.only_handlers),
    ),
    _mutant(
        "10",
        "what a look leaves in doubt is certain",
        "jobs",
        "safe, exact",
        (parts.look_amendment, "_amended", parts.doubts_nothing),
    ),
    _mutant(
        "10",
        "who may close a channel or stop a server does not count",
        "closers",
        "safe, exact",
        (parts.look_amendment, "_amended", parts.finds_no_way_out),
    ),
    _mutant(
        "10",
        "a way out that is found does not count",
        "tasks",
        "safe, exact",
        (parts.look_amendment, "_amended", parts.finds_no_way_out),
    ),
    _mutant("cure 1", "any one victim frees everybody", "cures", "cure", (cure_parts.victims, "_frees", cure_parts.always)),
    _mutant(
        "cure 2",
        "the preview frees all who are stuck",
        "cures",
        "cure",
        (cure_parts.freed, "freed_by", cure_parts.frees_everybody),
    ),
    _mutant(
        "cure 2",
        "the preview frees nobody but those next to a victim",
        "cures",
        "cure",
        (cure_parts.freed, "freed_by", cure_parts.frees_the_next),
    ),
    _mutant("cure 4", "who has gone on is aborted", "cures", "cure, safe", (parts.recorder, "_look_at", parts.all_unchanged)),
)
